# For scenarios of weighted interleave, after lib.sh.

# Folios are laid out whole; placement is exact where pages are small.
huge=/sys/kernel/mm/transparent_hugepage/enabled
echo never >$huge
sysfs=/sys/kernel/mm/mempolicy/weighted_interleave

weights() {
    [ ! -d $sysfs ] || echo $(cat $sysfs/node0 $sysfs/node1 $sysfs/node2)
}

# says PATTERN COMMAND...: it fails, and says this
says() {
    pattern=$1
    shift
    refused "$@"
    has "$*" /tmp/said "$pattern"
}

# The command that touches MIB MiB, and then waits for somebody to read them.
fifo=/tmp/fifo
mkfifo $fifo
exec 5<>$fifo
touches() {
    echo "/bin/dd if=/dev/zero of=$fifo count=1 bs=$1M"
}

# started PID MIB: waits until the dd that it is, or has started, has touched all; $block_pid is its
# pid, $pages are its pages
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

# Whether all pages are there; finds the address of their mapping, which is known by its size.
is_full() {
    found=$(grep " anon=$pages " "/proc/$block_pid/numa_maps" 2>/dev/null) || return 1
    equal "mappings with $pages pages" "$(echo "$found" | wc -l)" 1
    address=${found%% *}
}

# The line of numa_maps of its memory. Pages that are just being moved are not counted there.
line() {
    grep "^$address " "/proc/$block_pid/numa_maps" || fail "$block_pid has no mapping at $address"
}

# on NODE: pages of it there. A node that has none is not named.
on() {
    on_it=$(line | sed -n "s/.* N$1=\([0-9]*\).*/\1/p")
    echo "${on_it:-0}"
}

# settled OPTIONS...: all lies as is asked for
settled() {
    isotherm interleave verify --pid "$block_pid" "$@" >/tmp/verified
}

# exact WEIGHT0 WEIGHT1: all lies as the rule says, to one page: page p of the
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
