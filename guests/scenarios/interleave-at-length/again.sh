# Laid out again and again, and what goes meanwhile; huge pages.
$(touches 64) &
started $! 64
# Another program moves the pages away; isotherm --keep moves them back.
echo 1 >/proc/sys/kernel/numa_balancing
isotherm interleave apply --pid "$block_pid" --nodes 0,1 --weights 5:1 --keep --interval 500ms \
    >/tmp/kept 2>/tmp/said &
keeper=$!
within 30 test -s /tmp/kept
has "that others move pages" /tmp/said "NUMA balancing is on"
echo 0 >/proc/sys/kernel/numa_balancing
isotherm interleave apply --pid "$block_pid" --nodes 2 --weights 1 >/dev/null
within 60 grep -qs "round" /tmp/kept
within 60 settled --nodes 0,1 --weights 5:1
# It ends with the process, also while that is moved.
isotherm interleave apply --pid "$block_pid" --nodes 1,2 --weights 1:1 >/tmp/ended 2>&1 &
mover=$!
moves() {
    [ "$(on 2)" -gt 0 ]
}
within 30 moves
kill "$block_pid"
wait $mover || fail "a process that ends while it is moved: $(cat /tmp/ended)"
wait $keeper || fail "it was kept: $(cat /tmp/kept)"

# Memory that is unmapped while it is moved: texts grow, each twice as long as the one before, which goes.
awk 'BEGIN { for (;;) { s = "x"; while (length(s) < 16000000) s = s s; print length(s) >"/tmp/long" } }' &
growing=$!
isotherm interleave apply --pid $growing --nodes 1,2 --weights 1:1 --keep --interval 100ms --json >/out/gone &
keeper=$!
within 90 grep -qs '"gone":[1-9]' /out/gone
kill -0 $growing || fail "it has not outlived that its memory is moved"
kill $growing
wait $keeper || fail "a process that unmaps what is moved"
# Nothing is lost: each was moved, or is counted among those that were not.
gone=$(guest-tool sum /out/gone left.gone)
told=$(guest-tool sum /out/gone .moved)
for why in shared gone busy no_room; do
    told=$((told + $(guest-tool sum /out/gone "left.$why")))
done
equal "pages of which is told what has become of them" "$told" "$(guest-tool sum /out/gone .misplaced)"

# Huge pages: each lies as a whole on the node of the rule.
echo always >$huge
$(touches 64) &
started $! 64
echo never >$huge
isotherm interleave apply --pid "$block_pid" --nodes 0,1 --weights 5:1 --json >/out/huge
settled --nodes 0,1 --weights 5:1 || fail "$(cat /tmp/verified)"
between 15360 16384 "pages in huge pages, of 16384" "$(guest-tool json /out/huge .in_folios)"
kill "$block_pid"
