// Package house holds the rules of the house as tests: who may import whom and
// why not, how large a file and a function may grow, and what no package may
// contain. It has no code of its own.
package house
