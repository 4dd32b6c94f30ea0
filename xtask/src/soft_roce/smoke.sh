# Shows the device, and passes messages through it: in one host through its own loopback, between two over the wire.
set -eu
rdma link show
ibv_devinfo -d "$ROCE_DEVICE" | grep -E 'state|active_mtu'
if [ "$ROCE_HOST" = 1 ]; then
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        ibv_rc_pingpong -d "$ROCE_DEVICE" -g 1 -n 100 "$ROCE_PEER" && exit 0
        sleep 1
    done
    exit 1
fi
timeout 60 ibv_rc_pingpong -d "$ROCE_DEVICE" -g 1 -n 100 &
server=$!
if [ "$ROCE_HOSTS" = 1 ]; then
    sleep 2
    timeout 60 ibv_rc_pingpong -d "$ROCE_DEVICE" -g 1 -n 100 "$ROCE_SELF"
fi
wait "$server"
