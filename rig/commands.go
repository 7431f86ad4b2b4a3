package rig

import (
	"fmt"
	"strings"
	"time"

	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
)

// commands is the language; doc.go describes it.
func commands() map[string]command {
	return map[string]command{
		"server": {
			usage: "NAME [mode=grpc|http-connect] [strategies=LIST] [zone=ZONE] [count=N] [grace=TIME] [dial-timeout=TIME] [attempts=N] [old]",
			least: 1, most: 1, flags: []string{"old"},
			options: []string{"mode", "strategies", "zone", "count", "grace", "dial-timeout", "attempts"}, run: runServer,
		},
		"agent": {
			usage: "NAME server=NAME[,NAME] [id=ID] [identifiers=QUERY] [lame-duck=TIME] [drain-timeout=TIME] [old]",
			least: 1, most: 1, flags: []string{"old"},
			options: []string{"server", "id", "identifiers", "lame-duck", "drain-timeout"}, run: runAgent,
		},
		"endpoint": {usage: "ADDRESS KIND [SIZE]", least: 2, most: 3, run: runEndpoint},
		"route":    {usage: "AGENT ADDRESS ROUTE", least: 3, most: 3, run: runRoute},

		"dial": {
			usage: "CLIENT via SERVER ADDRESS [within=TIME] [old] [paused]",
			least: 4, most: 4, flags: []string{"old", "paused"}, options: []string{"within"}, run: runDial,
		},
		"write":      {usage: "END SIZE", least: 2, most: 2, run: runWrite},
		"half-close": {usage: "END", least: 1, most: 1, run: onEnd((*End).HalfClose)},
		"close":      {usage: "END [now]", least: 1, most: 1, flags: []string{"now"}, run: runClose},
		"abort":      {usage: "END", least: 1, most: 1, run: onEnd(func(e *End) error { e.Abort(); return nil })},
		"pause":      {usage: "END [at=SIZE]", least: 1, most: 1, options: []string{"at"}, run: runPause},
		"resume":     {usage: "END", least: 1, most: 1, run: onEnd(func(e *End) error { e.Resume(); return nil })},

		"stall": {usage: "NAME [NAME]", least: 1, most: 2, run: shaping(tunneltest.Shape{Stall: true})},
		"heal":  {usage: "NAME [NAME]", least: 1, most: 2, run: shaping(tunneltest.Shape{})},
		"slow":  {usage: "NAME [NAME] [rate=SIZE/s] [latency=TIME]", least: 1, most: 2, options: []string{"rate", "latency"}, run: runSlow},
		"cut":   {usage: "NAME [NAME]", least: 1, most: 2, run: runCut},
		"lose":  {usage: "AGENT SERVER", least: 2, most: 2, run: runLose},

		"drain":   {usage: "PROCESS", least: 1, most: 1, run: onName((*Cluster).Drain)},
		"kill":    {usage: "PROCESS", least: 1, most: 1, run: onName((*Cluster).Kill)},
		"start":   {usage: "PROCESS", least: 1, most: 1, run: onName((*Cluster).Start)},
		"restart": {usage: "PROCESS", least: 1, most: 1, run: onName((*Cluster).Restart)},

		"wait":   {usage: "TIME [by=TIME]", least: 1, most: 1, options: []string{"by"}, run: runWait},
		"status": {usage: "NAME", least: 1, most: 1, run: runStatus},
		"expect": {
			usage: "END FACT, or PROCESS NUMBERS",
			least: 1, most: 6, options: []string{"tunnels", "dials", "connections", "agents", "servers"}, run: runExpect,
		},
	}
}

func onName(f func(*Cluster, string) error) func(*Cluster, args) ([]string, error) {
	return func(c *Cluster, a args) ([]string, error) { return nil, f(c, a.word(0)) }
}

func onEnd(f func(*End) error) func(*Cluster, args) ([]string, error) {
	return func(c *Cluster, a args) ([]string, error) {
		e, err := c.End(a.word(0))
		if err != nil {
			return nil, err
		}
		return nil, f(e)
	}
}

func runServer(c *Cluster, a args) ([]string, error) {
	cfg := ServerConfig{Name: a.word(0), Zone: a.options["zone"], Old: a.flags["old"]}
	switch mode := a.options["mode"]; mode {
	case "", "grpc":
	case "http-connect":
		cfg.Connect = true
	default:
		return nil, fmt.Errorf("there is no mode %q", mode)
	}
	var err error
	if list := a.options["strategies"]; list != "" {
		if cfg.Strategies, _, err = backend.ParseStrategies(list); err != nil {
			return nil, err
		}
	}
	if cfg.Count, err = a.number("count"); err != nil {
		return nil, err
	}
	if cfg.Attempts, err = a.number("attempts"); err != nil {
		return nil, err
	}
	if cfg.Grace, err = a.duration("grace"); err != nil {
		return nil, err
	}
	if cfg.DialTimeout, err = a.duration("dial-timeout"); err != nil {
		return nil, err
	}
	return nil, c.AddServer(cfg)
}

func runAgent(c *Cluster, a args) ([]string, error) {
	cfg := AgentConfig{
		Name:        a.word(0),
		ID:          a.options["id"],
		Servers:     strings.Split(a.options["server"], ","),
		Identifiers: a.options["identifiers"],
		Old:         a.flags["old"],
	}
	var err error
	if cfg.LameDuck, err = a.duration("lame-duck"); err != nil {
		return nil, err
	}
	if cfg.DrainTimeout, err = a.duration("drain-timeout"); err != nil {
		return nil, err
	}
	return nil, c.AddAgent(cfg)
}

func runEndpoint(c *Cluster, a args) ([]string, error) {
	size := int64(100)
	if text := a.word(2); text != "" {
		var err error
		if size, err = parseSize(text); err != nil {
			return nil, err
		}
	}
	return nil, c.AddEndpoint(a.word(0), Kind(a.word(1)), size)
}

func runRoute(c *Cluster, a args) ([]string, error) {
	return nil, c.SetRoute(a.word(0), a.word(1), Route(a.word(2)))
}

func runDial(c *Cluster, a args) ([]string, error) {
	within, err := a.duration("within")
	if err != nil {
		return nil, err
	}
	_, err = c.Dial(DialConfig{
		Client:  a.word(0),
		Server:  a.word(2),
		Address: a.word(3),
		Old:     a.flags["old"],
		Paused:  a.flags["paused"],
		Within:  within,
	})
	return nil, err
}

func runWrite(c *Cluster, a args) ([]string, error) {
	e, err := c.End(a.word(0))
	if err != nil {
		return nil, err
	}
	size, err := parseSize(a.word(1))
	if err != nil {
		return nil, err
	}
	return nil, e.Write(size)
}

func runClose(c *Cluster, a args) ([]string, error) {
	e, err := c.End(a.word(0))
	switch {
	case err != nil:
		return nil, err
	case a.flags["now"]:
		e.CloseNow()
		return nil, nil
	}
	return nil, e.Close()
}

func runPause(c *Cluster, a args) ([]string, error) {
	e, err := c.End(a.word(0))
	if err != nil {
		return nil, err
	}
	var at int64
	if text := a.options["at"]; text != "" {
		if at, err = parseSize(text); err != nil {
			return nil, err
		}
	}
	e.Pause(at)
	return nil, nil
}

func shaping(s tunneltest.Shape) func(*Cluster, args) ([]string, error) {
	return func(c *Cluster, a args) ([]string, error) { return nil, c.Shape(a.word(0), a.word(1), s) }
}

func runSlow(c *Cluster, a args) ([]string, error) {
	var s tunneltest.Shape
	var err error
	if text := a.options["rate"]; text != "" {
		if s.Rate, err = parseRate(text); err != nil {
			return nil, err
		}
	}
	if s.Latency, err = a.duration("latency"); err != nil {
		return nil, err
	}
	return nil, c.Shape(a.word(0), a.word(1), s)
}

func runCut(c *Cluster, a args) ([]string, error) { return nil, c.Cut(a.word(0), a.word(1)) }

func runLose(c *Cluster, a args) ([]string, error) { return nil, c.Lose(a.word(0), a.word(1)) }

func runWait(c *Cluster, a args) ([]string, error) {
	d, err := time.ParseDuration(a.word(0))
	if err != nil {
		return nil, err
	}
	step, err := a.duration("by")
	if err != nil {
		return nil, err
	}
	return c.Wait(d, step), nil
}

func runStatus(c *Cluster, a args) ([]string, error) {
	if e, err := c.End(a.word(0)); err == nil {
		return []string{e.String()}, nil
	}
	return c.Status(a.word(0))
}
