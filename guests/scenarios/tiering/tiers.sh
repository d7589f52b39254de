# The workload, and where its memory lies.
ticker
workload /scenario/workload.toml
# locate: where it lies, for interleave.sh too. What is hot has a mapping of its own, with cold ones around it.
pages=2048
locate() {
    block_pid=$workload
    start=$(printf %x "$(guest-tool json /tmp/ready .start)")
    is_full || fail "no mapping has $pages pages"
    cold=$(cold anon)
    between 6144 16384 "cold pages of the workload" "$cold"
}

# cold KEY: N0, N1 or N2, pages of the cold memory on that node; anon, all
cold() {
    grep -A 2 "^$start " "/proc/$workload/numa_maps" >/tmp/lines
    equal "mappings of the workload, and the address of the second" \
        "$(wc -l </tmp/lines) $(sed -n '2s/ .*//p' /tmp/lines)" "3 $address"
    sed 2d /tmp/lines | tr ' ' '\n' | sed -n "s/^$1=//p" | awk '{ n += $1 } END { print n + 0 }'
}
locate

# tiered: 95 % of the hot memory is on the fast node, and 95 % of the cold memory on the slow one
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

# The shipped schemes, with shorter times.
sed 's/age = { min = "30s" }/age = { min = "2s" }/' /scenario/tiering.toml >/tmp/tiering.toml
