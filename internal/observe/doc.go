// Package observe is what an operator sees of a process: health and readiness,
// metrics, a status page and profiles, on a health port and an admin port.
// COMPAT section 4 as changed by section 11.
package observe
