# Only hot memory: 8 MiB, and 128 KiB in islands. Before, all memory lies 5:1 over nodes 0 and 1, page by page.
workload /workload.toml
isotherm interleave apply --pid "$workload" --nodes 0,1 --weights 5:1 >/dev/null
# elsewhere: pages that do not lie as they did before
elsewhere() {
    isotherm interleave verify --pid "$workload" --nodes 0,1 --weights 5:1 --json >/tmp/before || true
    guest-tool json /tmp/before .misplaced
}
before=$(elsewhere)
isotherm interleave apply --pid "$workload" --nodes 0,2 --weights 1:1 --hot --watch 10s --json >/out/hot
hot_mib=$(($(guest-tool json /out/hot .hot_bytes) >> 20))
between 6 10 "MiB hot, of 8" $hot_mib
hot_moved=$(guest-tool json /out/hot .moved)
between 900 1200 "pages moved, of 1040" "$hot_moved"
equal "pages left of those that are hot" "$(guest-tool json /out/hot .misplaced)" "$hot_moved"
# Had another one moved, there would be more. A few may be new.
between "$hot_moved" $((hot_moved + before + 8)) "pages that do not lie as before" "$(elsewhere)"
end_workload
