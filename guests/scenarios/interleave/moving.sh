# A command whose memory isotherm moves to where it belongs.
isotherm interleave run --nodes 0,1 --weights 5:1 -- $(touches 16) 2>/tmp/run &
run=$!
started $run 16
has "that isotherm moves" /tmp/run "this kernel has no weighted interleave"
within 60 settled --nodes 0,1 --weights 5:1
exact 5 1
kill "$block_pid"
wait $run || true
