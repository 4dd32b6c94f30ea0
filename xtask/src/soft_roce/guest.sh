#!/bin/bash
# Runs as root in the guest: brings up one soft-RoCE device, runs the command, gives the verdict.
# Everything goes to files in the shared folder, since the console mangles long output.
set -u
folder=$1
. "$folder/environment"
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
exec >>"$folder/setup" 2>&1

verdict() {
    echo "SOFT-ROCE-VERDICT: $*" >>"$folder/verdict"
    sync
    exit 0
}

step() {
    echo "+ $*"
    timeout --kill-after=5 60 "$@" || verdict "failed setup ($*)"
}

# Tries until a condition holds: $1 seconds, then the condition.
await() {
    local left=$(($1 * 5))
    shift
    until "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || verdict "failed setup (waiting for: $*)"
        sleep 0.2
    done
}

find_interface() {
    interface=$(grep -l -x "$GUEST_MAC" /sys/class/net/*/address | head -n 1)
    interface=$(basename "${interface%/address}")
    [ -n "$interface" ]
}

port_is_active() { grep -q ACTIVE "/sys/class/infiniband/$ROCE_DEVICE/ports/1/state"; }
peer_answers() { busybox ping -c 1 -W 1 "$ROCE_PEER" >/dev/null; }
routable_gid() { grep -q -i '0000:0000:0000:0000:0000:ffff:' "/sys/class/infiniband/$ROCE_DEVICE/ports/1/gids/1"; }

echo up >>"$folder/stage"
step ip link set lo up
step modprobe rdma_rxe
step modprobe rdma_ucm
if [ -n "$GUEST_MAC" ]; then
    step modprobe virtio_net
    await 60 find_interface
    timeout 60 udevadm settle
    await 60 find_interface
else
    interface=dummy0
    step modprobe dummy numdummies=0
    step ip link add "$interface" type dummy
fi
step ip addr add "$ROCE_SELF/24" dev "$interface"
step ip link set "$interface" mtu 4200 up
step rdma link add "$ROCE_DEVICE" type rxe netdev "$interface"
await 60 port_is_active
await 60 routable_gid
await 60 test -c /dev/infiniband/uverbs0
step chmod 666 /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm
[ "$ROCE_HOSTS" = 1 ] || await 240 peer_answers
ulimit -l unlimited || verdict "failed setup (ulimit -l unlimited)"
export ROCE_INTERFACE=$interface
echo ready >>"$folder/stage"

mapfile -d '' -t argv <"$folder/argv"
cd "$GUEST_DIRECTORY" || verdict "failed setup (cd $GUEST_DIRECTORY)"
timeout --kill-after=10 "$GUEST_TIMEOUT" "${argv[@]}" >"$folder/output" 2>&1 </dev/null
code=$?
# A kernel that complained has not passed, whatever the command says.
dmesg >"$folder/dmesg"
if grep -q -E 'BUG:|Oops|general protection|refcount_t:|WARNING: CPU' "$folder/dmesg"; then
    grep -E -A 20 'BUG:|Oops|general protection|refcount_t:|WARNING: CPU' "$folder/dmesg" | head -n 60
    verdict "failed kernel (see dmesg; the command ended with $code)"
fi
[ "$code" -eq 0 ] && verdict ok
[ "$code" -eq 124 ] && verdict "failed the command ran for more than $GUEST_TIMEOUT s"
verdict "failed $code"
