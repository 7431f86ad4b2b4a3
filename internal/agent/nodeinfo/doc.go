// Package nodeinfo finds an agent's identifiers in its Node object: addresses,
// pod CIDRs, host name and zone. It asks the Kubernetes API for one Node, when it
// is asked itself and what it knows is old; it watches nothing.
package nodeinfo
