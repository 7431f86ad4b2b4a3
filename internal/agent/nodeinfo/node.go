package nodeinfo

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// CheckName says what is wrong with a Node's name, before anybody is asked for it.
func CheckName(name string) error {
	if strings.Contains(name, "$(") {
		return errors.New("the variable was not replaced: give the container an environment variable of that name, from the field spec.nodeName")
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("not the name of a Node: %s", problems[0])
	}
	return nil
}

// FromNode is what node says about parts, in the order of Parts. What cannot be
// used as an identifier is left out and listed in ignored.
func FromNode(node *corev1.Node, parts []Part) (ids wire.Identifiers, ignored []wire.IgnoredIdentifier) {
	var good []wire.Identifier
	for _, part := range Parts() {
		if !slices.Contains(parts, part) {
			continue
		}
		for _, pair := range pairs(node, part) {
			if slices.Contains(good, pair) {
				continue
			}
			if _, err := wire.NewIdentifiers([]wire.Identifier{pair}); err != nil {
				ignored = append(ignored, wire.IgnoredIdentifier{Identifier: pair, Err: err})
				continue
			}
			good = append(good, pair)
		}
	}
	ids, err := wire.NewIdentifiers(good)
	if err != nil { // each is good, and only the zone may not come twice: it comes once
		return wire.Identifiers{}, append(ignored, wire.IgnoredIdentifier{Err: err})
	}
	return ids, ignored
}

// pairs is what a Node says about one part.
func pairs(node *corev1.Node, part Part) (list []wire.Identifier) {
	add := func(key, value string) {
		if value != "" {
			list = append(list, wire.Identifier{Key: key, Value: value})
		}
	}
	switch part {
	case Addresses:
		for _, a := range node.Status.Addresses {
			switch a.Type {
			case corev1.NodeInternalIP, corev1.NodeExternalIP:
				add(ipKey(a.Address), a.Address)
			case corev1.NodeInternalDNS, corev1.NodeExternalDNS:
				add(wire.KeyHost, a.Address)
			}
		}
	case PodCIDRs:
		for _, prefix := range node.Spec.PodCIDRs {
			add(wire.KeyCIDR, prefix)
		}
		if len(node.Spec.PodCIDRs) == 0 {
			add(wire.KeyCIDR, node.Spec.PodCIDR)
		}
	case Hostname:
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeHostName {
				add(wire.KeyHost, a.Address)
			}
		}
		add(wire.KeyHost, node.Labels[corev1.LabelHostname])
	case Zone:
		add(wire.KeyFailureZone, node.Labels[corev1.LabelTopologyZone])
	}
	return list
}

// ipKey is the key for an address; ipv4 for what is none, which is refused there.
func ipKey(address string) string {
	if a, err := netip.ParseAddr(address); err == nil && !a.Is4() {
		return wire.KeyIPv6
	}
	return wire.KeyIPv4
}
