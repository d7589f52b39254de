# What is there already, laid out anew.
$(touches 64) &
started $! 64
equal "pages elsewhere before" "$(on 1)" 0
isotherm interleave apply --pid "$block_pid" --nodes 0,1 --weights 5:1 --json >/out/applied
equal "pages that could not be moved" $(($(figures misplaced /out/applied) - $(figures moved /out/applied))) 0
settled --nodes 0,1 --weights 5:1 || fail "$(cat /tmp/verified)"
exact 5 1
says "elsewhere than the weights ask" isotherm interleave verify --pid "$block_pid" --nodes 0,1 --weights 1:5
kill "$block_pid"
