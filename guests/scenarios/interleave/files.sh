# The kernel's own files, as the model in crates/mm has them: the written text, and the text shown afterwards.
# takes FILE TEXT: what the file shows after this was written
takes() {
    (echo "$2" >"$1") 2>/dev/null && cat "$1" || echo refused
}
default=1
[ "$WEIGHTS" = "1 1 1" ] || default=refused
for pair in 255=255 0x1f=31 017=15 256=refused -1=refused a=refused "1 =refused" 0=$default =$default; do
    equal "weight '${pair%%=*}'" "$(takes $sysfs/node0 "${pair%%=*}")" "${pair#*=}"
done
if [ "$WEIGHTS" = "5 2 1" ]; then
    auto=$(echo $sysfs/*auto*)
    equal "weights after one was written" "$(weights)" "15 2 1"
    for pair in maybe=refused off=false on=true 0=false y=true; do
        equal "automatic mode '${pair%%=*}'" "$(takes "$auto" "${pair%%=*}")" "${pair#*=}"
    done
fi
equal "weights after all that" "$(weights)" "$WEIGHTS"
