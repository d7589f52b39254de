# The workload, and where its memory lies.
ticker
workload /scenario/workload.toml
# For interleave.sh: the pages that are hot, which have a line of numa_maps of their own.
block_pid=$workload
pages=2048

# cold KEY: N0, N1 or N2, pages of the cold memory before and behind them on that node; anon, all
cold() {
    sed -n "/^$(printf %x "$(figures start /tmp/ready)") /,+2p" "/proc/$workload/numa_maps" |
        grep -v "anon=$pages " | tr ' ' '\n' | sed -n "s/^$1=//p" | awk '{ n += $1 } END { print n + 0 }'
}
cold=$(cold anon)

# tiered: 95 % of what is hot is on the fast node, and of what is cold on the slow one
tiered() {
    [ $(($(on 0) * 100)) -ge $((pages * 95)) ] && [ $(($(cold N1) * 100)) -ge $((cold * 95)) ]
}

# by SCHEME NAME COMMAND...: the scheme is at work until the command succeeds
by() {
    scheme=$1
    name=$2
    shift 2
    isotherm run $emulated --interval 2s --scheme "$scheme" --pid "$workload" \
        --log "/out/$name.log" --json >"/out/$name.json" 2>"/out/$name.err" &
    run=$!
    within 40 "$@"
    kill $run
    wait $run || fail "$(cat "/out/$name.err")"
}

# As it is shipped, but for what takes time.
sed 's/age = { min = "30s" }/age = { min = "2s" }/' /scenario/tiering.toml >/tmp/tiering.toml
