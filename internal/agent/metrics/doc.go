// Package metrics shows an agent's events as Prometheus metrics: those that
// operators of Konnectivity know, name for name (COMPAT section 5), and Culvert's
// own beside them, under the prefix culvert_agent_.
//
// Each agent has a registry of its own. Every series whose labels are known
// beforehand exists from the start, and every gauge is 0 when nothing goes on.
package metrics
