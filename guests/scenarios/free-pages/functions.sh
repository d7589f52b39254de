# For `run`, after lib.sh.
ticker
modprobe virtio_balloon
modprobe zram
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
isotherm system swap zram 512M >/out/swap
zram=$(sed -n 's|.* /dev/\(zram[0-9]*\),.*|\1|p' /out/swap)
order=/sys/module/page_reporting/parameters/page_reporting_order

# busy SECONDS: waits without being idle. The clock of an idle guest runs ahead of its host, which takes the pages.
busy() {
    until=$(($(cut -d. -f1 /proc/uptime) + $1))
    while [ "$(cut -d. -f1 /proc/uptime)" -lt $until ]; do :; done
}

# settled: MiB of this guest on the host, once they no longer fall. A kernel reports up to a sixteenth of its free
# pages every 2 s.
settled() {
    last=$(host_mib)
    for try in $(seq 20); do
        busy 5
        now=$(host_mib)
        [ $((last - now)) -gt 1 ] || [ $try -le 1 ] || break
        last=$now
    done
    echo "$now"
}

swapped_mib() {
    awk '$1 == "VmSwap:" { print int($2 / 1024) }' "/proc/$workload/status"
}

# page_out NAME LEAST: pages out what is idle, until that many MiB are in swap; $out are
page_out() {
    isotherm reclaim $emulated --pid "$workload" --min-age 2s --pages --quota none --quota-size none \
        --watermarks none --control none --log "/out/$1.log" >"/out/$1.table" 2>"/out/$1.err" &
    reclaim=$!
    least=$2
    is_out() {
        [ "$(swapped_mib)" -ge "$least" ]
    }
    within 60 is_out
    kill $reclaim
    wait $reclaim || fail "$(cat "/out/$1.err")"
    out=$(swapped_mib)
    compressed=$(awk '{ print int($3 / 1048576) }' "/sys/block/$zram/mm_stat")
}

# compact: moves pages together, so that whole blocks become free
compact() {
    echo 1 >/proc/sys/vm/compact_memory
}

# touch_again: reads all memory of the workload
touch_again() {
    start=$(guest-tool json /tmp/ready .start)
    end=$(guest-tool json /tmp/ready .end)
    dd if="/proc/$workload/mem" of=/dev/null bs=4096 skip=$((start / 4096)) count=$(((end - start) / 4096)) 2>/dev/null
}

# round NAME LEAST: the workload NAME.toml comes, at least LEAST MiB are paged out, and touched again
round() {
    compact
    before=$(settled)
    workload "/scenario/$1.toml"
    full=$(settled)
    page_out "$1" "$2"
    less=$(settled)
    compact
    compacted=$(settled)
    small=$(echo 0 >$order && settled)
    echo 9 >$order
    touch_again
    back=$(settled)
    end_workload >/dev/null
    seen "$1: $before MiB, $full with the program, $less after $out were paged out (to $compressed in zram), $compacted after a compaction, $small with reports of single pages, $back after a touch"
    # What the host can get is what was paged out, less the compressed pages. Programs that ended have left a little more.
    got=$((out - compressed))
    between $((full - got - 64)) $((full - got * 70 / 100)) "$1: MiB with reports of single pages" "$small"
    between $((small - 8)) $((less + 8)) "$1: MiB after a compaction" "$compacted"
    between $((full - compressed - 16)) $((full + 64)) "$1: MiB after a touch" "$back"
}
