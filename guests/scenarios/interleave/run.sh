# A command whose memory the kernel interleaves: exact.
# touched WEIGHTS: 256 MiB of a command are there, by these
touched() {
    isotherm interleave run --nodes 0,1 --weights "$1" -- $(touches 256) 2>/tmp/run &
    run=$!
    started $run 256
}
ended() {
    kill "$block_pid"
    wait $run || true
    equal "weights after it" "$(weights)" "$WEIGHTS"
}
touched 5:1
has "that weights are the machine's" /tmp/run "apply to the whole machine: 0=5,1=1"
equal "weights while it runs" "$(weights | cut -d ' ' -f 1-2)" "5 1"
settled || fail "$(cat /tmp/verified)"
has "the policy" /tmp/verified "weighted interleave:0-1; by 0=5,1=1"
exact 5 1
says "wait until it has ended, or use the same" isotherm interleave run --nodes 0,1 --weights 7:3 -- true
says "wait until it has ended, or use the same" isotherm interleave set 0=3
isotherm interleave run --nodes 0,1 --weights 5:1 -- true
equal "weights after another one with the same" "$(weights | cut -d ' ' -f 1-2)" "5 1"
ended
touched 1:5
exact 1 5
ended

# After a kill, only the next isotherm can restore the weights.
isotherm interleave run --nodes 0,1 --weights 3:4 -- sleep 1000 2>/tmp/run &
run=$!
within 30 grep -qs "0=3,1=4" /tmp/run
kill -9 $run
wait $run || true
equal "weights after a kill" "$(weights | cut -d ' ' -f 1-2)" "3 4"
isotherm interleave set restore 2>/tmp/said
has "what was swept" /tmp/said "restored the weights after a run was killed"
equal "weights after the next" "$(weights)" "$WEIGHTS"
