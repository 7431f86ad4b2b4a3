// Package rig runs a whole cluster in one process, in fake time: servers, agents,
// endpoints and clients, as their binaries have them, on a network in memory that
// can stall, slow down, cut and lose.
//
// A Cluster is used from Go, or by scenarios: text files whose lines are commands,
// with a recorded transcript beside each (testdata/*.txt and *.golden). The
// transcript is the scenario, with what happened below each line and when; a test
// plays every scenario and compares. `make gen` records anew.
//
// # The language
//
// A line is a command; # and what follows it is a comment. Sizes are 100, 100KiB,
// 64MiB; times are 250ms, 25s, 1h. Nothing but wait lets time pass: every other
// command is over when everybody in the cluster waits for something.
//
// Who there is. A process that has ended may be described again.
//
//	server NAME [mode=grpc|http-connect] [strategies=LIST] [zone=ZONE] [count=N]
//	            [grace=TIME] [dial-timeout=TIME] [attempts=N] [old]
//	agent NAME server=NAME[,NAME] [id=ID] [identifiers=QUERY] [lame-duck=TIME]
//	            [drain-timeout=TIME] [old]
//	endpoint ADDRESS KIND [SIZE]
//	route AGENT ADDRESS ROUTE
//
// "old" is a peer without extensions. What is left out is as the flags have it.
// The kinds of endpoints: echo; sink, which reads; banner, which writes SIZE (100
// bytes) first and then reads; source, which writes SIZE, ends its side and then
// reads; answer, which writes SIZE once it has read the end; stuck, which reads
// nothing until it is resumed; refuses; black-hole, which never answers a dial.
// All but stuck ones close when they have read the end. A route is how one agent's
// dials to an endpoint go: ok, no-route, refused, black-hole, no-files,
// dns-temporary.
//
// Tunnels. An END is a client, or a connection that an endpoint has accepted:
// node1:80#1 is the first of node1:80.
//
//	dial CLIENT via SERVER ADDRESS [within=TIME] [old] [paused]
//	write END SIZE
//	half-close END
//	close END [now]
//	abort END
//	pause END [at=SIZE]
//	resume END
//
// An end reads all the time, unless it is paused, and does what it is told to
// write and to close one after the other; close with "now", and abort, do not wait
// for that. A dial that waits is cancelled by either. What an end writes begins
// with its name and goes on with bytes that follow from the name, so whoever reads
// it says whose it is, and notices every byte that is missing, doubled or wrong.
//
// Faults. A NAME is a process, an endpoint or a client; the second one may be left
// out, for anyone.
//
//	stall NAME [NAME]     nothing arrives, no end and no reset either
//	slow NAME [NAME] [rate=SIZE/s] [latency=TIME]
//	heal NAME [NAME]      undoes both; a rule for two names holds before others
//	cut NAME [NAME]       all connections break, and both sides notice
//	lose AGENT SERVER     the link breaks, and only the agent notices
//	kill PROCESS          SIGKILL
//	drain PROCESS         SIGTERM
//	start PROCESS         after its end, as it was described
//	restart PROCESS       kill and start
//
// Looking.
//
//	wait TIME [by=TIME]   what happens meanwhile is stamped to a tenth of a second,
//	                      or to what "by" says; 1s in a wait of more than 10m
//	status NAME           of a process or an END
//	expect END FACT       pending, up, failed REASON, open, eof, broken REASON,
//	                      closed, got SIZE of END, got nothing, from AGENT
//	expect PROCESS [agents=N] [servers=N] [tunnels=N] [dials=N] [connections=N]
//
// An expectation that does not hold fails the test, whatever was recorded. So does
// whatever is left when the scenario is over: tunnels, dials, connections,
// goroutines.
//
// # What a transcript says
//
// Lines are sorted by name within a moment. Clients and connections of endpoints
// say what happens to them. Of each process it says, when they change: a server's
// agents (those that may be given dials), dials and tunnels; an agent's servers
// and connections. How many bytes had arrived is said of orderly ends only, since
// with others it depends on how goroutines ran; the same goes for texts of errors,
// which hold port numbers. Where the moment of something depends on that too, a
// coarser wait hides it. What is random in a cluster (jitter, the choice among
// equal agents) is the same in every run.
//
// # What it is not
//
// Connections in memory are not sockets: HTTP CONNECT finds no kernel to ask. A
// client of it that closes looks as if it had half-closed, one that is gone is
// noticed when something is written or read, and an abnormal end is shown to it as
// a plain one. There is no TLS. Package behaviour beside this one tests all that
// with real processes.
package rig
