# The machine's weights: set, read back, reset to the default, restored.
isotherm interleave set 0=5,1=1
isotherm interleave set 2=3
equal "weights that were set" "$(weights)" "5 1 3"
isotherm interleave set default
equal "weights by default" "$(weights)" "$WEIGHTS"
isotherm interleave set 1=7
isotherm interleave set restore
equal "weights put back" "$(weights)" "$WEIGHTS"
if [ "$WEIGHTS" = "5 2 1" ]; then
    has "the mode that was put back" $sysfs/*auto* true
    isotherm interleave set 0=9,1=9,2=9
    isotherm interleave set auto
    equal "weights that the kernel derives" "$(weights)" "5 2 1"
    isotherm interleave set restore
else
    says "no automatic weights" isotherm interleave set auto
fi
# A weight that another program has set since stays.
isotherm interleave set 0=5,1=6
echo 9 >$sysfs/node1
isotherm interleave set restore | tee /tmp/restored
has "what is left" /tmp/restored "another program has changed the weights of nodes 1 since"
equal "the weight of another program" "$(cat $sysfs/node1)" 9
if [ "$WEIGHTS" = "5 2 1" ]; then
    echo 1 | tee $sysfs/*auto* >/dev/null
else
    echo 0 >$sysfs/node1
fi
