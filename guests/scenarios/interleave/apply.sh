# isotherm moves existing memory; 256 MiB if the kernel has no weighted interleave.
mib=64
[ "$WAY" = policy ] || mib=256
$(touches $mib) &
started $! $mib
equal "pages elsewhere before" "$(on 1)" 0
for pair in "5 1" "1 5"; do
    set -- $pair
    isotherm interleave apply --pid "$block_pid" --nodes 0,1 --weights "$1:$2" --json >/out/applied
    equal "pages that could not be moved" $(($(guest-tool json /out/applied .misplaced) - $(guest-tool json /out/applied .moved))) 0
    exact "$1" "$2"
done
settled --nodes 0,1 --weights 1:5 || fail "$(cat /tmp/verified)"
says "on other nodes than the weights require" isotherm interleave verify --pid "$block_pid" --nodes 0,1 --weights 5:1
kill "$block_pid"
