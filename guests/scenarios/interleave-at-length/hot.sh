# Only what is hot: 8 MiB, and 128 KiB in islands.
far_pages() {
    sed 's/.* N2=\([0-9]*\).*/\1/;t;d' "/proc/$workload/numa_maps" | awk '{ n += $1 } END { print n + 0 }'
}
workload /workload.toml
before=$(far_pages)
isotherm interleave apply --pid "$workload" --nodes 0,2 --weights 1:1 --hot --watch 10s --json >/out/hot
hot_mib=$(($(figures hot_bytes /out/hot) >> 20))
between 6 24 "MiB hot, of 8" $hot_mib
hot_moved=$(figures moved /out/hot)
between 900 1500 "pages moved, of 1024" "$hot_moved"
equal "pages of it that came to the other node" $(($(far_pages) - before)) "$hot_moved"
end_workload
