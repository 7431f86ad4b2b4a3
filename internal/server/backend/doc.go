// Package backend keeps the connected agents' links and chooses one for each
// dial.
//
// A Router holds an ordered list of backend managers, one per strategy of
// --proxy-strategies. Each has a storage of its own, keyed by identifier type and
// value. A dial asks the managers in order; the first that has a backend for the
// destination wins. Within a manager the more specific key comes first (an exact
// host before a pattern, a longer prefix before a shorter one), and within a key:
//
//  1. neither draining nor suspect, in the server's failure zone;
//  2. neither draining nor suspect, elsewhere;
//  3. draining, then suspect ones, again the same zone first.
//
// Specificity goes before health on purpose: a draining agent of the right
// subnet still reaches the endpoint, and a healthy agent elsewhere may not, in
// which case its failure would be final. Among equals the lesser load of two
// random ones wins.
//
// Choosing is pure: no streams, clocks or context values.
package backend
