# isotherm also moves the memory of a process whose parent has ended.
isotherm interleave run --nodes 0,1 --weights 5:1 --interval 200ms -- \
    sh -c "sh -c '$(touches 16) & echo \$! >/tmp/orphan'; exec sleep 1000" 2>/tmp/run &
run=$!
within 30 test -s /tmp/orphan
started "$(cat /tmp/orphan)" 16
within 60 settled --nodes 0,1 --weights 5:1
exact 5 1
kill "$block_pid"
kill $run
wait $run || true
