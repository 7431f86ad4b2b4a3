package nodeinfo

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// aNode has something of everything.
func aNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{
			corev1.LabelHostname: "node-1", corev1.LabelTopologyZone: "eu-1b", corev1.LabelTopologyRegion: "eu-1",
		}},
		Spec: corev1.NodeSpec{PodCIDR: "10.1.4.0/24", PodCIDRs: []string{"10.1.4.0/24", "fd00:1:4::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "node-1"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0.7"},
			{Type: corev1.NodeInternalIP, Address: "fd00::7"},
			{Type: corev1.NodeExternalIP, Address: "192.0.2.7"},
			{Type: corev1.NodeInternalDNS, Address: "node-1.internal"},
			{Type: corev1.NodeExternalDNS, Address: "node-1.example"},
		}},
	}
}

func TestFromNode(t *testing.T) {
	const (
		addresses = "ipv4=10.0.0.7 ipv6=fd00::7 ipv4=192.0.2.7 host=node-1.internal host=node-1.example"
		cidrs     = "cidr=10.1.4.0/24 cidr=fd00:1:4::/64"
	)
	for _, c := range []struct {
		name   string
		parts  []Part
		change func(n *corev1.Node)
		want   string
		bad    string
	}{
		{"everything", Parts(), nil, addresses + " " + cidrs + " host=node-1 failure-zone=eu-1b", ""},
		{"in any order", []Part{Zone, Addresses}, nil, addresses + " failure-zone=eu-1b", ""},
		{"hostname", []Part{Hostname}, nil, "host=node-1", ""},
		{"hostname and another label", []Part{Hostname}, func(n *corev1.Node) { n.Labels[corev1.LabelHostname] = "other" }, "host=node-1 host=other", ""},
		{"hostname that is an address", []Part{Hostname}, func(n *corev1.Node) {
			n.Status.Addresses[0].Address = "10.0.0.7"
			n.Labels = nil
		}, "host=10.0.0.7", ""},
		{"podCIDRs", []Part{PodCIDRs}, nil, cidrs, ""},
		{"podCIDR alone", []Part{PodCIDRs}, func(n *corev1.Node) { n.Spec.PodCIDRs = nil }, "cidr=10.1.4.0/24", ""},
		{"zone", []Part{Zone}, nil, "failure-zone=eu-1b", ""},
		{"nothing yet", Parts(), func(n *corev1.Node) { *n = corev1.Node{} }, "", ""},
		{"values that are no identifiers", Parts(), func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "soon"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.7"},
				{Type: corev1.NodeInternalDNS, Address: "a b"}, {Type: "Other", Address: "10.0.0.8"}, {Type: corev1.NodeHostName},
			}
			n.Spec.PodCIDRs = []string{"10.1.4.0", "10.1.5.1/24"}
			n.Labels = nil
		}, "ipv4=10.0.0.7 cidr=10.1.5.1/24", "ipv4=soon host=a b cidr=10.1.4.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := aNode()
			if c.change != nil {
				c.change(node)
			}
			ids, ignored := FromNode(node, c.parts)
			var got, bad []string
			for _, p := range ids.Pairs {
				got = append(got, p.String())
			}
			for _, i := range ignored {
				bad = append(bad, i.String())
			}
			if strings.Join(got, " ") != c.want || strings.Join(bad, " ") != c.bad {
				t.Errorf("got %q, ignored %q; want %q, %q", got, bad, c.want, c.bad)
			}
		})
	}
}

func TestParseParts(t *testing.T) {
	for in, want := range map[string][]Part{
		"addresses,podCIDRs,hostname,zone": Parts(),
		"zone":                             {Zone},
		"zone,,addresses,zone,":            {Zone, Addresses},
	} {
		if got, err := ParseParts(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", ",", "Zone", "zone, hostname", "labels"} {
		if _, err := ParseParts(in); err == nil || !strings.Contains(err.Error(), Names(Parts())) {
			t.Errorf("%q: error %v does not list the valid names", in, err)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, says := range map[string]string{
		"node-1": "", "ip-10-0-0-7.eu.internal": "",
		"$(NODE_NAME)": "spec.nodeName", "n-$(X)": "spec.nodeName",
		"": "not the name of a Node", "Node": "not the name of a Node", "a b": "not the name of a Node", "a/b": "not the name of a Node",
	} {
		err := CheckName(name)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", name, err, says)
		}
	}
}
