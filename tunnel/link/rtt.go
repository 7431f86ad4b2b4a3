package link

import "time"

type rtt struct {
	at, val [16]int64
	n       int
}

func (r *rtt) add(now, v int64) {
	r.at[r.n%16], r.val[r.n%16] = now, v
	r.n++
}

func (r *rtt) min(now int64) time.Duration {
	var m int64
	for i := range min(r.n, 16) {
		if now-r.at[i] <= int64(10*time.Second) && (m == 0 || r.val[i] < m) {
			m = r.val[i]
		}
	}
	return time.Duration(m)
}
