package server

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// events tells the log and the status page what the relay reports, and passes
// everything on to the metrics. At V(0) to V(4) it writes one line per tunnel at
// most: when it ends, or when its dial failed (DESIGN 4.8).
type events struct {
	relay.Observer
	log      klog.Logger
	failures *failures
}

func (s *Server) observer() relay.Observer {
	return events{Observer: s.metrics.Relay(), log: s.log, failures: &s.failures}
}

// DialAttempt implements relay.Observer.
func (e events) DialAttempt(f relay.AttemptFailure) {
	e.Observer.DialAttempt(f)
	e.log.V(5).Info("Dial attempt failed", "endpoint", f.Request.Address, "dialID", f.Request.DialID,
		"agentID", f.Peer.Info().AgentID, "reason", f.Err.Reason.String(), "final", f.Final, "cause", f.Err.Error())
}

// DialFailed implements relay.Observer.
func (e events) DialFailed(req relay.Request, err *wire.DialError) {
	e.Observer.DialFailed(req, err)
	if err.Reason == wire.ReasonCanceled {
		e.log.V(4).Info("Client gave up its dial", "endpoint", req.Address, "dialID", req.DialID)
		return
	}
	e.failures.add(Failure{At: time.Now(), Endpoint: req.Address, Reason: err.Reason.String(), Text: err.Error()})
	e.log.V(2).Info("Dial failed", "endpoint", req.Address, "dialID", req.DialID, "reason", err.Reason.String(), "cause", err.Error())
}

// TunnelOpened implements relay.Observer.
func (e events) TunnelOpened(t *relay.Tunnel) {
	e.Observer.TunnelOpened(t)
	e.log.V(5).Info("Tunnel opened", "endpoint", t.Request().Address, "dialID", t.Request().DialID,
		"agentID", t.Peer().Info().AgentID, "connectionID", t.ConnectionID())
}

// TunnelClosed implements relay.Observer.
func (e events) TunnelClosed(t *relay.Tunnel, end relay.End) {
	e.Observer.TunnelClosed(t, end)
	if end.Abnormal() && end.Reason != wire.ReasonAborted {
		e.failures.add(Failure{At: time.Now(), Endpoint: t.Request().Address, Reason: end.Reason.String(), Text: end.Text})
	}
	level := e.log.V(4)
	if !level.Enabled() {
		return // the line below costs more than a short tunnel
	}
	up, down := t.Bytes()
	level.Info("Tunnel closed", "endpoint", t.Request().Address, "dialID", t.Request().DialID, "agentID", t.Peer().Info().AgentID,
		"connectionID", t.ConnectionID(), "reason", end.Reason.String(), "up", up, "down", down, "took", time.Since(t.Opened()))
}
