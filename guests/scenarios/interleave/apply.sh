# What is there already, laid out anew.
$(touches 64) &
started $! 64
equal "pages elsewhere before" "$(on 1)" 0
isotherm interleave apply --pid "$block_pid" --nodes 0,1 --weights 5:1 --json >/out/applied
equal "pages that could not be moved" $(($(figures misplaced /out/applied) - $(figures moved /out/applied))) 0
settled --nodes 0,1 --weights 5:1 || fail "$(cat /tmp/verified)"
exact 5 1
says "elsewhere than the weights ask" isotherm interleave verify --pid "$block_pid" --nodes 0,1 --weights 1:5
# Somebody moves them away; who keeps them moves them back.
isotherm interleave apply --pid "$block_pid" --nodes 0,1 --weights 5:1 --keep --interval 500ms >/tmp/kept &
keeper=$!
within 30 test -s /tmp/kept
isotherm interleave apply --pid "$block_pid" --nodes 2 --weights 1 >/dev/null
within 60 grep -q "round" /tmp/kept
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

# Huge pages: each lies as the rule says of it as a whole.
echo always >$huge
$(touches 64) &
started $! 64
echo never >$huge
isotherm interleave apply --pid "$block_pid" --nodes 0,1 --weights 5:1 --json >/out/huge
settled --nodes 0,1 --weights 5:1 || fail "$(cat /tmp/verified)"
between 15360 16384 "pages in huge pages, of 16384" "$(figures in_folios /out/huge)"
kill "$block_pid"

# Only what is hot: 8 MiB, and 128 KiB in islands.
far_pages() {
    sed 's/.* N2=\([0-9]*\).*/\1/;t;d' "/proc/$workload/numa_maps" | awk '{ n += $1 } END { print n + 0 }'
}
workload /workload.toml
before=$(far_pages)
isotherm interleave apply --pid "$workload" --nodes 0,2 --weights 1:1 --hot --watch 8s --json >/out/hot
hot_mib=$(($(figures hot_bytes /out/hot) >> 20))
between 6 24 "MiB hot, of 8" $hot_mib
hot_moved=$(figures moved /out/hot)
between 700 3000 "pages moved, of 1024" "$hot_moved"
equal "pages of it that came to the other node" $(($(far_pages) - before)) "$hot_moved"
end_workload
