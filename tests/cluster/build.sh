#!/bin/bash
# build.sh [clusterbin] [coredns] [pause]   (default: all)
# Builds the test cluster's programs from Go modules, pinned by src/*/go.mod and go.sum, and the image of the pause container.
# Env: CLUSTER_BIN (where programs go; bin/), CLUSTER_IMAGES (where images go; images/)
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd); BIN=${CLUSTER_BIN:-$HERE/bin}; IMAGES=${CLUSTER_IMAGES:-$HERE/images}; mkdir -p "$BIN"
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -trimpath" GOTOOLCHAIN=local
[ $# -gt 0 ] || set -- clusterbin coredns pause
go_build() { # module-dir output package ldflags
  local s=$SECONDS; (cd "$HERE/src/$1" && go build -ldflags "-s -w $4" -o "$BIN/$2.new" "$3") && mv -f "$BIN/$2.new" "$BIN/$2"
  echo "$2: $((SECONDS - s)) s, $(stat -c %s "$BIN/$2") bytes"
}
for what; do case $what in
  clusterbin)
    v=""
    for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
      v="$v -X $p.gitVersion=v1.34.4 -X $p.gitMajor=1 -X $p.gitMinor=34 -X $p.gitTreeState=clean -X $p.gitCommit=gomodule -X $p.buildDate=1970-01-01T00:00:00Z"
    done
    go_build clusterbin clusterbin . "$v"
    for c in etcd kubectl kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy; do ln -sf clusterbin "$BIN/$c"; done ;;
  coredns) go_build coredns coredns . "" ;;
  pause)
    mkdir -p "$IMAGES"; r=$(mktemp -d); gcc -Os -static -s -o "$r/pause" "$HERE/src/pause/pause.c"
    "$HERE/mkimage.sh" "$r" localhost/pause:dev "$IMAGES/pause.tar" '{"Entrypoint":["/pause"],"User":"65535:65535"}'; rm -r "$r" ;;
esac; done
