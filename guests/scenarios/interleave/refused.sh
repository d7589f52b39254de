# Bad input: an error that says what is wrong, and nothing changed.
says "1 to 255" isotherm interleave set 0=256
says "1 to 255" isotherm interleave set 0=0
says "1 to 255" isotherm interleave run --nodes 0,1 --weights 9:0 -- true
says "2 nodes" isotherm interleave run --nodes 0,1 --weights 9 -- true
says "no node 7 with memory; nodes with memory: 0, 1, 2" isotherm interleave run --nodes 0,7 --weights 9:1 -- true
says "no such program" isotherm interleave run --nodes 0,1 --weights 9:1 -- /no/such
says "no process 999999" isotherm interleave apply --pid 999999 --weights 1:1:1
says "policy of weighted interleave" isotherm interleave verify --pid $$
says "give --yes to start" isotherm interleave probe
sleep 1000 &
sleeper=$!
mkdir -p /sys/fs/cgroup/narrow
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
echo 0 >/sys/fs/cgroup/narrow/cpuset.mems
echo $sleeper >/sys/fs/cgroup/narrow/cgroup.procs
says "nodes 0, and not of node 1: change its cpuset" isotherm interleave apply --pid $sleeper --nodes 0,1 --weights 1:1
says "nodes 0, and not of node 1: change its cpuset" sh -c \
    'echo $$ >/sys/fs/cgroup/narrow/cgroup.procs; exec isotherm interleave run --nodes 0,1 --weights 1:1 -- true'
kill $sleeper
if [ "$WAY" = moving ]; then
    says "no weighted interleave" isotherm interleave set 0=9
    says "no weighted interleave" isotherm interleave set restore
else
    says "no node 7 with memory" isotherm interleave set 0=9,7=1
fi
equal "the weights after bad input" "$(weights)" "$WEIGHTS"
