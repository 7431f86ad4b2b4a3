package agent

import (
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// events tells the log what the endpoints report, and passes everything on to
// the metrics. At V(0) to V(4) it writes one line per tunnel at most.
type events struct {
	endpoint.Observer
	log klog.Logger
}

// DialFailed implements endpoint.Observer.
func (e events) DialFailed(d endpoint.Dial, err *wire.DialError) {
	e.Observer.DialFailed(d, err)
	e.log.V(2).Info("Dial failed", "endpoint", d.Address, "dialID", d.DialID, "reason", err.Reason.String(), "cause", err.Error())
}

// Closed implements endpoint.Observer.
func (e events) Closed(c endpoint.Info, end endpoint.End) {
	e.Observer.Closed(c, end)
	e.log.V(4).Info("Tunnel closed", "endpoint", c.Address, "dialID", c.DialID, "connectionID", c.ConnectionID,
		"reason", end.Reason.String(), "up", c.Up, "down", c.Down)
}
