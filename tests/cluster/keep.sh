#!/bin/bash
# keep.sh MODE LOCK: brings a cluster up, says `ready`, waits for the end of its own input, and takes the cluster down. So a
# cluster ends with whoever holds the other end of the pipe, however that one ends. LOCK is held as long as anything is up.
# Env: as for up.sh
set -uo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
exec 9> "$2"
flock --nonblock 9 || { echo "waiting for the cluster of another process"; flock 9; }
kill -0 "$PPID" 2> /dev/null || exit 0 # nobody needs it anymore
"$HERE/down.sh" --purge 9>&- # what a killed process left
# the programs do not get the lock: it is free as soon as we are gone
if "$HERE/up.sh" "$1" 2>&1 9>&-; then
  echo ready
  cat > /dev/null
else
  tail -v -n 8 "$CLUSTER_STATE"/logs/*.log 2> /dev/null
fi
"$HERE/down.sh" --purge 9>&-
