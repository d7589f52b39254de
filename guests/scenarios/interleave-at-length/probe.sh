# Each node is measured, and weights come of it; which, means nothing here.
isotherm interleave probe --yes --time 24s --json -o /out/curve.svg >/out/probe
has "weights of three nodes" /out/probe '"2:1":\[[0-9]+,[0-9]+,[0-9]+\]'
