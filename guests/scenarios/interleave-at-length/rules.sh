# The kernel's rules, with the weights at first and with others. Files take a file system: /tmp is in memory.
mkdir /files
mount -t ramfs files /files

# rules NAME: all cases follow the rule, except those that require features that this kernel lacks
rules() {
    TMPDIR=/files isotherm interleave verify --kernel >"/out/$1" || fail "$(cat "/out/$1")"
    lacks=$(grep "^not here" "/out/$1" | grep -v "this kernel does not interleave by weight" || true)
    equal "cases of $1 that are not here" "$lacks" ""
    tried=$(grep -c "^as the rule" "/out/$1")
}
rules rules
if [ "$WAY" = policy ]; then
    isotherm interleave set 0=5,1=1,2=3
    rules rules-5-1-3
    has "the weights" /out/rules-5-1-3 "by the weights 0=5,1=1,2=3"
    equal "cases that are not here" "$(grep -c "^not here" /out/rules-5-1-3)" 0
    isotherm interleave set restore
fi
