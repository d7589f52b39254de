# For scenarios of weighted interleave, after lib.sh.

# A folio is placed as a whole, so placement is exact only for small pages.
huge=/sys/kernel/mm/transparent_hugepage/enabled
echo never >$huge
sysfs=/sys/kernel/mm/mempolicy/weighted_interleave

weights() {
    [ ! -d $sysfs ] || echo $(cat $sysfs/node0 $sysfs/node1 $sysfs/node2)
}

# says PATTERN COMMAND...: the command fails with a message that matches
says() {
    pattern=$1
    shift
    refused "$@"
    has "$*" /tmp/said "$pattern"
}

# Prints the command that touches MIB MiB, and then waits until they are read.
fifo=/tmp/fifo
mkfifo $fifo
exec 5<>$fifo
touches() {
    echo "/bin/dd if=/dev/zero of=$fifo count=1 bs=$1M"
}

# started PID MIB: waits until dd, which is this process or its child, has touched all memory. $block_pid is its
# pid, $pages the number of its pages
started() {
    pages=$(($2 * 256))
    within 30 dd_of "$1"
    within 60 is_full
}

dd_of() {
    block_pid=$1
    while [ "$(cat "/proc/$block_pid/comm" 2>/dev/null)" != dd ]; do
        block_pid=$(cat "/proc/$block_pid/task/$block_pid/children" 2>/dev/null)
        block_pid=${block_pid% }
        [ -n "$block_pid" ] || return 1
    done
}

# Whether all pages exist. Finds the address of their mapping by its size.
is_full() {
    found=$(grep " anon=$pages " "/proc/$block_pid/numa_maps" 2>/dev/null) || return 1
    equal "mappings with $pages pages" "$(echo "$found" | wc -l)" 1
    address=${found%% *}
}

# The line of numa_maps for its memory. It does not count pages that are being moved.
line() {
    grep "^$address " "/proc/$block_pid/numa_maps" || fail "$block_pid has no mapping at $address"
}

# on NODE: the number of its pages on that node. The line does not name nodes without pages.
on() {
    on_it=$(line | sed -n "s/.* N$1=\([0-9]*\).*/\1/p")
    echo "${on_it:-0}"
}

# settled OPTIONS...: all pages are where the weights place them
settled() {
    isotherm interleave verify --pid "$block_pid" "$@" >/tmp/verified
}

# exact WEIGHT0 WEIGHT1: all pages, except for at most one, are where the rule places them: page p of the
# address space is on node 0 if p mod (W0 + W1) is below W0, and else on node $other
exactly=
other=1
exact() {
    line=$(line)
    first=$((0x${line%% *} >> 12))
    round=$(($1 + $2))
    # below PAGE WEIGHT: pages below PAGE that are on node 0
    below() {
        rest=$(($1 % round))
        [ "$rest" -le "$2" ] || rest=$2
        echo $(($1 / round * $2 + rest))
    }
    wanted=$(($(below $((first + pages)) "$1") - $(below "$first" "$1")))
    found=$(on 0)
    off=$((wanted - found))
    [ ${off#-} -le 1 ] || fail "$1:$2: $found pages on node 0, not $wanted: $line"
    equal "$1:$2: pages on both" $((found + $(on $other))) "$pages"
    exactly="$exactly $1:$2 N0=$found N$other=$((pages - found))"
}
