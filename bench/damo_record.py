"""Writes a record as damo 3 does: json_compressed, SNAPSHOTS of REGIONS each. Usage: damo_record.py SNAPSHOTS REGIONS FILE"""
import sys, random, zlib
n_snap, n_reg, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
random.seed(1)
c = zlib.compressobj()
f = open(out, 'wb')
def put(s): f.write(c.compress(s.encode()))
put('''[
    {
        "kdamond_idx": 0,
        "context_idx": 0,
        "intervals": {
            "sample_us": "5000",
            "aggr_us": "100000",
            "ops_update_us": "1000000",
            "intervals_goal": {
                "access_bp": "0.000000",
                "aggrs": "0",
                "min_sample_us": "0",
                "max_sample_us": "0"
            }
        },
        "scheme_idx": null,
        "target_id": 0,
        "scheme_filters": [],
        "snapshots": [''')
base = 94827419009024
size = [random.randrange(1, 2000) * 4096 for _ in range(n_reg)]
for s in range(n_snap):
    lines = []
    at = base
    for i in range(n_reg):
        if random.random() < .1: size[i] = random.randrange(1, 2000) * 4096
        end = at + size[i]
        lines.append('''
                    {
                        "start": "%s",
                        "end": "%s",
                        "nr_accesses": {
                            "samples": %d,
                            "percent": null
                        },
                        "age": {
                            "usec": null,
                            "aggr_intervals": "%s"
                        }
                    }''' % (format(at, ','), format(end, ','), random.choice((0,0,0,0,0,0,1,5,20)), format(random.randrange(5000), ',')))
        at = end
    put((',' if s else '') + '''
            {
                "start_time": "%d",
                "end_time": "%d",
                "regions": [%s
                ],
                "total_bytes": "%s",
                "damos_stats": null,
                "sample_interval_us": null
            }''' % (10**12 + s * 10**8, 10**12 + (s + 1) * 10**8, ','.join(lines), format(at - base, ',')))
put('''
        ],
        "data_source": "unknown"
    }
]''')
f.write(c.flush())
