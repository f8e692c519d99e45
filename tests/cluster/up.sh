#!/bin/bash
# up.sh [api|control|node]
#   api: etcd + kube-apiserver: enough for CRDs, validation, watches (no root needed, loopback only)
#   control: the above + kube-controller-manager + kube-scheduler (no root needed, loopback only)
#   node (default): the above + containerd, kubelet, kube-proxy and CoreDNS: one real node (root needed; fixed addresses, so
#                   one a machine: it refuses to start where another one is)
# Idempotent: a part whose recorded pid is alive is left alone. Takes nothing from the network.
# Env: CLUSTER_HOME (scripts, bin/, images/), CLUSTER_STATE (all state), CLUSTER_BIN (programs), CLUSTER_IMAGES (tars that the
#      node gets), COREDNS (program), CRDS (file or folder of CRDs), ETCD, NODE_NAME, API_PORT, ETCD_PORT, ETCD_PEER_PORT,
#      MANAGER_PORT, SCHEDULER_PORT
set -euo pipefail
MODE=${1:-node}
HERE=$(cd "$(dirname "$0")" && pwd)
HOME_DIR=${CLUSTER_HOME:-$HERE}
S=${CLUSTER_STATE:-$HOME_DIR/state}
BIN=${CLUSTER_BIN:-$HOME_DIR/bin}
ETCD=${ETCD:-$BIN/etcd}; [ -x "$ETCD" ] || ETCD=$(command -v etcd)
NODE=${NODE_NAME:-node1}
POD_NET=10.244.0.0/24; POD_CIDR=10.244.0.0/16; SVC_CIDR=10.96.0.0/16; SVC_API=10.96.0.1
NODE_IP=10.243.0.1                     # a /32 on lo: reachable from the host and from pods
IMAGES=${CLUSTER_IMAGES:-$HOME_DIR/images}; COREDNS=${COREDNS:-$BIN/coredns}
MANAGER_PORT=${MANAGER_PORT:-10257}; SCHEDULER_PORT=${SCHEDULER_PORT:-10259}
API_PORT=${API_PORT:-16443}; ETCD_PORT=${ETCD_PORT:-23790}; ETCD_PEER=${ETCD_PEER_PORT:-$((ETCD_PORT + 10))}
if [ "$MODE" = node ]; then API_IP=$NODE_IP; else API_IP=127.0.0.1; fi
P=$S/pki; K=$S/kubeconfig; L=$S/logs; PIDS=$S/pids; RUN=$S/run
mkdir -p "$P" "$K" "$L" "$PIDS" "$RUN" "$S/etcd" "$S/conf"
T0=$(date +%s%N); say() { printf '%6d ms  %s\n' $((($(date +%s%N) - T0) / 1000000)) "$*"; }

# pid + start time + boot id name one process for good; a zombie does not count
born() { awk -v b="$(cat /proc/sys/kernel/random/boot_id)" '$3 != "Z" {print $22 ":" b}' "/proc/$1/stat" 2>/dev/null; }
alive() { # name
  local pid at
  [ -f "$PIDS/$1" ] && read -r pid at < "$PIDS/$1" && [ "$(born "$pid")" = "$at" ]
}
start() { # name program args...
  local name=$1 prog=$2; shift 2
  if alive "$name"; then say "$name already up"; return 0; fi
  setsid nohup "$prog" "$@" > "$L/$name.log" 2>&1 < /dev/null &
  echo "$! $(born $!)" > "$PIDS/$name"
  disown
}
waitfor() { # seconds what command...
  local end=$(($(date +%s) + $1)) what=$2; shift 2
  until "$@" > /dev/null 2>&1; do
    [ "$(date +%s)" -lt "$end" ] || { say "TIMEOUT waiting for $what"; return 1; }
    sleep 0.2
  done
  say "$what"
}

if alive kube-apiserver && [ "$(cat "$S/mode")" != "$MODE" ]; then echo "already up in mode $(cat "$S/mode"); run down.sh first" >&2; exit 1; fi
echo "$MODE" > "$S/mode"

# ---- node address, and what down.sh puts back: from here on it knows that this machine's network is ours --------------------
another_node() {
  ip -o link show e2e0 2>/dev/null || ss -Hltn "sport = :$API_PORT or sport = :10250 or sport = :10256" | grep . ||
    { find /sys/fs/cgroup -path '*/kubepods*' -name cgroup.procs -exec cat {} + 2>/dev/null || true; } | grep .
}
if [ "$MODE" = node ] && [ ! -f "$S/sysctl.before" ]; then
  if there=$(another_node); then
    echo "another node runs on this machine, take that one down first: $there" >&2; exit 1
  fi
  for k in net.ipv4.ip_forward vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes; do
    echo "$k=$(sysctl -n $k)"; done > "$S/sysctl.new"
  # what the programs make at places of their own choice
  for folder in /var/lib/kubelet /var/lib/cni /var/log/containers; do [ -e "$folder" ] || echo "$folder"; done > "$S/folders.made"
  mv "$S/sysctl.new" "$S/sysctl.before"
  [ -n "$(ip -o addr show to "$NODE_IP/32")" ] || { touch "$S/address.made"; ip addr add "$NODE_IP/32" dev lo; }
fi

# ---- certificates (EC P-256, one CA) ------------------------------------------------------
ca() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=e2e-ca" -keyout "$P/ca.key" -out "$P/ca.crt" 2>/dev/null; }
cert() { # name subject usage [san]
  [ -f "$P/$1.crt" ] && return 0
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$P/$1.key" -out "$P/$1.csr" 2>/dev/null
  { echo "keyUsage=critical,digitalSignature,keyEncipherment"; echo "extendedKeyUsage=$3"; [ -z "${4:-}" ] || echo "subjectAltName=$4"; } > "$P/$1.ext"
  openssl x509 -req -in "$P/$1.csr" -CA "$P/ca.crt" -CAkey "$P/ca.key" -CAcreateserial -days 3650 -extfile "$P/$1.ext" -out "$P/$1.crt" 2>/dev/null
}
[ -f "$P/ca.crt" ] || ca
[ -f "$P/sa.key" ] || { openssl genrsa -out "$P/sa.key" 2048 2>/dev/null; openssl rsa -in "$P/sa.key" -pubout -out "$P/sa.pub" 2>/dev/null; }
cert apiserver "/CN=kube-apiserver" serverAuth "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$NODE_IP,IP:$SVC_API"
cert kubelet-serving "/O=system:nodes/CN=system:node:$NODE" serverAuth "DNS:$NODE,IP:127.0.0.1,IP:$NODE_IP"
cert apiserver-kubelet "/O=system:masters/CN=kube-apiserver-kubelet-client" clientAuth
cert admin "/O=system:masters/CN=admin" clientAuth
cert controller-manager "/CN=system:kube-controller-manager" clientAuth
cert scheduler "/CN=system:kube-scheduler" clientAuth
cert kube-proxy "/CN=system:kube-proxy" clientAuth
cert coredns "/CN=coredns" clientAuth
cert kubelet "/O=system:nodes/CN=system:node:$NODE" clientAuth
cert front-proxy "/CN=front-proxy-client" clientAuth
kcfg() { cat > "$K/$1" <<X
apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: "https://$API_IP:$API_PORT", certificate-authority: $P/ca.crt}}]
users: [{name: $1, user: {client-certificate: $P/$1.crt, client-key: $P/$1.key}}]
contexts: [{name: e2e, context: {cluster: e2e, user: $1}}]
current-context: e2e
X
}
for u in admin controller-manager scheduler kube-proxy kubelet coredns; do kcfg $u; done
KUBECTL=$BIN/kubectl; [ -x "$KUBECTL" ] || KUBECTL=$(command -v kubectl)
kc() { "$KUBECTL" --kubeconfig "$K/admin" "$@"; }
say "certificates and kubeconfigs"

# ---- etcd -------------------------------------------------------------------------------
start etcd "$ETCD" --name e2e --data-dir "$S/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
  --listen-peer-urls "http://127.0.0.1:$ETCD_PEER" --initial-advertise-peer-urls "http://127.0.0.1:$ETCD_PEER" \
  --initial-cluster "e2e=http://127.0.0.1:$ETCD_PEER"
waitfor 90 "etcd healthy" sh -c "curl -fsS http://127.0.0.1:$ETCD_PORT/health | grep -q true"

# ---- control plane ------------------------------------------------------------------------
start kube-apiserver "$BIN/kube-apiserver" \
  --bind-address "$API_IP" --secure-port "$API_PORT" --advertise-address "$([ "$MODE" = node ] && echo "$NODE_IP" || echo 127.0.0.1)" \
  --etcd-servers "http://127.0.0.1:$ETCD_PORT" --service-cluster-ip-range "$SVC_CIDR" \
  --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
  --tls-cert-file "$P/apiserver.crt" --tls-private-key-file "$P/apiserver.key" --client-ca-file "$P/ca.crt" \
  --kubelet-client-certificate "$P/apiserver-kubelet.crt" --kubelet-client-key "$P/apiserver-kubelet.key" \
  --kubelet-certificate-authority "$P/ca.crt" --kubelet-preferred-address-types InternalIP \
  --service-account-issuer https://kubernetes.default.svc.cluster.local --service-account-key-file "$P/sa.pub" --service-account-signing-key-file "$P/sa.key" \
  --requestheader-client-ca-file "$P/ca.crt" --requestheader-allowed-names front-proxy-client \
  --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group --requestheader-extra-headers-prefix X-Remote-Extra- \
  --proxy-client-cert-file "$P/front-proxy.crt" --proxy-client-key-file "$P/front-proxy.key" \
  $([ "$MODE" = node ] || echo --endpoint-reconciler-type=none) ${APISERVER_EXTRA:-}
waitfor 180 "kube-apiserver /readyz" kc get --raw /readyz
# CRDs known before the controller manager starts are garbage-collected at once; later ones only after its next 30 s discovery sync
if [ -n "${CRDS:-}" ]; then
  kc apply --server-side -f "$CRDS" > /dev/null
  waitfor 90 "CRDs established" kc wait --for=condition=Established --timeout=1s -f "$CRDS"
fi
if [ "$MODE" = api ]; then say "API server up: export KUBECONFIG=$K/admin"; exit 0; fi
start kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig "$K/controller-manager" \
  --bind-address 127.0.0.1 --secure-port "$MANAGER_PORT" --leader-elect=false --use-service-account-credentials=true --kube-api-qps 300 --kube-api-burst 600 \
  --service-account-private-key-file "$P/sa.key" --root-ca-file "$P/ca.crt" \
  --cluster-signing-cert-file "$P/ca.crt" --cluster-signing-key-file "$P/ca.key" \
  --flex-volume-plugin-dir "$S/kubelet-plugins" --allocate-node-cidrs=false --node-monitor-grace-period=20s ${KCM_EXTRA:-}
start kube-scheduler "$BIN/kube-scheduler" --kubeconfig "$K/scheduler" \
  --authentication-kubeconfig "$K/scheduler" --authorization-kubeconfig "$K/scheduler" --bind-address 127.0.0.1 --secure-port "$SCHEDULER_PORT" \
  --leader-elect=false
settled() {
  waitfor 120 "kube-scheduler healthz" curl -fsSk "https://127.0.0.1:$SCHEDULER_PORT/healthz"
  waitfor 120 "default service account (controller-manager works)" kc -n default get serviceaccount default
}
if [ "$MODE" != node ]; then settled; say "control plane up: export KUBECONFIG=$K/admin"; exit 0; fi

# ---- node: CNI, containerd ----------------------------------------------------------------
sysctl -qw net.ipv4.ip_forward=1
masq=(POSTROUTING -s "$POD_NET" ! -d "$POD_NET" -m comment --comment e2e-pods -j MASQUERADE)
iptables -w -t nat -C "${masq[@]}" 2>/dev/null || iptables -w -t nat -A "${masq[@]}"
CNIBIN=${CNI_BIN:-/usr/lib/cni}
mkdir -p "$S/conf/cni" "$S/containerd" "$RUN/containerd"
cat > "$S/conf/cni/10-bridge.conflist" <<X
{"cniVersion": "0.4.0", "name": "e2e", "plugins": [
  {"type": "bridge", "bridge": "e2e0", "isGateway": true, "isDefaultGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$S/cni-ipam", "ranges": [[{"subnet": "$POD_NET"}]]}}]}
X
cat > "$S/conf/containerd.toml" <<X
version = 2
root = "$S/containerd"
state = "$RUN/containerd"
[grpc]
  address = "$RUN/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$S/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:dev"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$CNIBIN"
    conf_dir = "$S/conf/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
X
start containerd "$(command -v containerd)" --config "$S/conf/containerd.toml"
waitfor 90 "containerd answers" ctr -a "$RUN/containerd.sock" version
for t in "$IMAGES"/*.tar; do
  m=$S/conf/imported.$(basename "$t"); [ "$m" -nt "$t" ] && continue
  ctr -a "$RUN/containerd.sock" -n k8s.io images import "$t" > /dev/null && touch "$m"
done
say "images imported: $(ctr -a "$RUN/containerd.sock" -n k8s.io images ls -q | grep -v '^sha256' | tr '\n' ' ')"

# ---- kubelet ------------------------------------------------------------------------------
cat > "$S/conf/kubelet.yaml" <<X
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
port: 10250
healthzBindAddress: 127.0.0.1
healthzPort: 10248
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $P/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $P/kubelet-serving.crt
tlsPrivateKeyFile: $P/kubelet-serving.key
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
containerRuntimeEndpoint: unix://$RUN/containerd.sock
clusterDomain: cluster.local
clusterDNS: [$NODE_IP]
resolvConf: $S/conf/resolv.conf
podLogsDir: $S/pod-logs
volumePluginDir: $S/kubelet-plugins
nodeStatusUpdateFrequency: 5s
imageGCHighThresholdPercent: 100
# not a share of the disk: one that is large and nearly full has room for tests, and pods would be evicted
evictionHard: {memory.available: 100Mi, nodefs.available: 200Mi, imagefs.available: 200Mi}
maxPods: 110
X
cp /etc/resolv.conf "$S/conf/resolv.conf"
mkdir -p "$S/pod-logs" "$S/kubelet"
PATH=$PATH:/usr/sbin start kubelet "$BIN/kubelet" --config "$S/conf/kubelet.yaml" --kubeconfig "$K/kubelet" \
  --root-dir "$S/kubelet" --cert-dir "$S/kubelet/pki" --hostname-override "$NODE" --node-ip "$NODE_IP" --oom-score-adj 0 ${KUBELET_EXTRA:-}

# ---- kube-proxy ---------------------------------------------------------------------------
cat > "$S/conf/kube-proxy.yaml" <<X
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: 0.0.0.0
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clientConnection: {kubeconfig: $K/kube-proxy}
mode: ${PROXY_MODE:-iptables}
clusterCIDR: $POD_CIDR
hostnameOverride: $NODE
conntrack: {maxPerCore: 0, min: 0}
X
start kube-proxy "$BIN/kube-proxy" --config "$S/conf/kube-proxy.yaml"
# ---- DNS: CoreDNS as a host process on the node address; every pod's resolv.conf names it ----
if [ -x "$COREDNS" ]; then
  kc apply -f - > /dev/null <<X
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-dns}
rules:
- {apiGroups: [""], resources: [services, namespaces, endpoints], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-dns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-dns}
subjects: [{kind: User, name: coredns, apiGroup: rbac.authorization.k8s.io}]
X
  cat > "$S/conf/Corefile" <<X
.:53 {
  bind $NODE_IP
  errors
  ready 127.0.0.1:10253
  cache 1
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $K/coredns e2e
    ttl 1
  }
}
X
  start coredns "$COREDNS" -conf "$S/conf/Corefile"
  waitfor 90 "coredns ready" curl -fsS http://127.0.0.1:10253/ready
fi
waitfor 90 "node registered" kc get node "$NODE"
waitfor 90 "node Ready" kc wait --for=condition=Ready "node/$NODE" --timeout=1s
settled
waitfor 120 "kube-proxy healthz" curl -fsS http://127.0.0.1:10256/healthz
say "cluster up: export KUBECONFIG=$K/admin"
