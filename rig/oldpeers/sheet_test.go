package oldpeers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// row is a sequence or rule of the sheet, as 9.2 and 11 change it, and the tests
// that play it: in this package, or "directory:Test" in another one.
type row struct {
	sheet string
	what  string
	tests string // separated by blanks
}

// headersAndIDs are COMPAT 1.1 to 1.5.
func headersAndIDs() []row {
	return []row{
		{"1.1", "which listener has which service; no other service", "TestServices"},
		{"1.1", "messages beyond 4 MiB end one stream of a client; an agent's are taken (11)", "TestOversizeMessages TestSizesOfOurAgentsData internal/server/agentlink:TestLargeMessages"},
		{"1.2", "payload missing or not what the type says: crashes the reference (9.2)", "TestMismatchedPacketsFromClients TestMismatchedPacketsFromAgents TestMismatchedPacketsFromServers TestOurClientsDialIsEnded TestConnectPacketsInTheWrongOrder"},
		{"1.2", "Data.error and unknown fields say nothing", "TestUnknownFields TestUnknownFieldsFromServers"},
		{"1.2", "bytes that are no packet", "TestBytesThatAreNoPacket TestAgentLost TestServerLost"},
		{"1.3", "agentID: exactly one value, may be empty, any case", "TestHeadersOfAgents TestRefusalsSayWhy"},
		{"1.3", "agentIdentifiers: at most one value; parse failure refused; unknown keys ignored", "TestHeadersOfAgents TestIdentifiersOfOldAgents"},
		{"1.3", "authorization ignored where no token is asked for", "TestHeadersOfAgents"},
		{"1.3", "refusals are trailers only, code Unknown", "TestHeadersOfAgents TestServerThatRefuses"},
		{"1.3", "serverID and serverCount at once, before any packet", "TestAnswerToOldAgents TestServerWithoutExtensions"},
		{"1.3", "serverID: exactly one value, may be empty", "TestAnswersThatCannotBeRight TestCountsOfOldServers TestUnknownHeadersOfServers"},
		{"1.3", "serverCount: exactly one integer; 0 and less are unknown", "TestAnswersThatCannotBeRight TestCountsOfOldServers"},
		{"1.3", "a server that sends no headers costs a limited time (9.2)", "TestServerThatSendsNoHeaders"},
		{"1.3", "what our agent says; names of keys", "TestHeadersOfOurAgent TestNamesOfHeaders internal/agent/serverlink:TestToken"},
		{"1.3", "frontend: nothing needed, nothing answered but gRPC's own headers", "TestAnswerToOldClients"},
		{"1.3", ":authority of all kinds", "TestAuthorities TestSocketGRPC internal/agent/serverlink:TestAuthority"},
		{"1.4", "TLS and ALPN", "internal/transport:TestServerTLSHTTP1Protocols internal/transport:TestCredentialsWithoutH2 internal/transport:TestClientCredentials internal/server/frontconnect:TestALPN"},
		{"1.5", "random: the client's; equal ones of two clients do not meet (9.2)", "TestTwoClientsWithOneRandom TestGivingUpOneOfTwoEqualRandoms TestOddRandoms"},
		{"1.5", "random: the agent does not mind equal ones", "TestAgentCountsConnections"},
		{"1.5", "connectID: per stream from 1, failed dials use one up, anew on each stream", "TestAgentCountsConnections"},
		{"1.5", "connectID: passed to the client as it is, from several agents alike", "TestDialOK TestConnectionIDsOfTwoAgents"},
		{"1.5", "key is the stream, not the agent ID (9.2)", "TestTwoStreamsOfOneAgentID TestOldAgentComesBack TestNewerStreamOfADrainingAgent"},
	}
}

// whoMaySend is COMPAT 1.6, cell by cell where a packet is ignored.
func whoMaySend() []row {
	return []row{
		{"1.6", "client to server: DIAL_RSP, CLOSE_RSP, DRAIN, unknown", "TestPacketsThatClientsDoNotSend"},
		{"1.6", "server to agent: DIAL_RSP, CLOSE_RSP, DRAIN, unknown", "TestPacketsThatServersDoNotSend"},
		{"1.6", "server to agent: DIAL_CLS cancels (9.2)", "TestAgentObeysDialClose TestAgentAnswersBeforeDialClose"},
		{"1.6", "agent to server: DIAL_REQ, CLOSE_REQ, unknown", "TestPacketsThatAgentsDoNotSend TestConnectPacketsInTheWrongOrder"},
		{"1.6", "agent to server: DIAL_CLS gives the dial up", "TestAgentGivesTheDialUp TestConnectAgentGivesTheDialUp"},
		{"1.6", "server to client: DIAL_REQ, CLOSE_REQ, DRAIN, unknown", "TestPacketsThatOurClientIgnores"},
		{"1.6", "nothing of ours is sent to those who have not agreed", "TestNothingOfOursIsSentToOldAgents TestNothingOfOursIsSentToOldClients TestHeadersOfOurAgent TestOldAndNewAgentsAtOnce"},
	}
}

// sequences are COMPAT 1.7, by its headings.
func sequences() []row {
	return []row{
		{"1.7 Dial ok", "", "TestDialOK TestAddressesAreNotLookedInto TestAnswerDataAndEndAtOnce TestAgentDialsInParallel"},
		{"1.7 Data", "forwarded both ways, in order", "TestDialOK TestOrderIsKept TestOurClientDataAndClose"},
		{"1.7 Data", "without bytes: dropped (the library takes it for an end)", "TestDataWithoutBytes TestUnknownFieldsFromServers TestPacketsThatOurClientIgnores"},
		{"1.7 Data", "connection 0: dropped everywhere", "TestConnectionZero TestAgentDoesNotKnowTheConnection TestPacketsThatOurClientIgnores"},
		{"1.7 Dial failure at the agent", "the text passes; the stream ends (9.2)", "TestDialFailsAtTheAgent TestSecondDialAfterAFailure TestOurClientsDialFails"},
		{"1.7 Dial failure at the agent", "texts of our agent", "TestAgentsDialErrors"},
		{"1.7 Dial failure at the agent", "a failure of the agent's own is tried with another (11)", "TestDialFailsAtOneOfTwoAgents TestRetriesBetweenOldAndNewAgents"},
		{"1.7 Dial failure at the agent", "networks other than TCP (9.2)", "TestOtherNetworks TestAgentRefusesOtherNetworks"},
		{"1.7 No agent", "answered; the stream ends (9.2)", "TestNoAgent TestOurClientsDialFails"},
		{"1.7 Server cannot send to the agent", "", "TestDialThatCannotBeSent"},
		{"1.7 Backend dial timeout", "and a late answer", "TestBackendDialTimeout TestNoBackendDialTimeout TestOurClientsDialFails"},
		{"1.7 Dial cancelled by the client", "and a late answer; the agent is told (9.2)", "TestClientGivesTheDialUp TestOurClientGivesTheDialUp"},
		{"1.7 Dial cancelled by the client", "DIAL_CLS for an unknown random", "TestDialCloseForAnotherDial"},
		{"1.7 Dial cancelled by the client", "DIAL_CLS crosses the answer", "TestDialCloseAfterTheAnswer TestAgentAnswersBeforeDialClose"},
		{"1.7 Client lost during the dial", "loss and half-close", "TestClientGivesTheDialUp TestClientsConnectionLost"},
		{"1.7 Close by client", "the stream discards what follows, and stays for the answer", "TestCloseByClient TestCloseByClientIsAnsweredLate TestCloseByClientIsNotAnswered TestOurClientDataAndClose"},
		{"1.7 Close by client", "our agent flushes, answers, and delivers what it had (9.2)", "TestAgentFlushesBeforeItAnswers TestAgentDeliversBeforeItCloses TestAgentClosesAStuckEndpoint"},
		{"1.7 Close by client", "the agent does not know the connection", "TestCloseOfWhatTheAgentDoesNotKnow TestAgentDoesNotKnowTheConnection"},
		{"1.7 Close by client", "CLOSE_REQ cannot be sent", "TestCloseWhenTheAgentIsGone TestOurClientIsClosed"},
		{"1.7 Close by client", "of another's connection: ownership is checked (9.2)", "TestMismatchedConnectionIDs"},
		{"1.7 Close by endpoint", "rest, CLOSE_RSP; late packets of the client", "TestCloseByEndpoint TestCloseByEndpointWhileTheClientSends TestOurClientIsClosed"},
		{"1.7 Close by endpoint", "FIN is a full close; a reset", "TestAgentTakesFINForAClose TestAgentReportsAReset"},
		{"1.7 Agent stream lost", "CLOSE_RSP without an error for each connection", "TestAgentLost TestDataBeforeTheAgentIsLost TestFrozenOldAgent"},
		{"1.7 Agent stream lost", "pending dials are answered, or move (9.2)", "TestAgentLost TestOnlyAgentLostDuringTheDial"},
		{"1.7 Agent stream lost", "our agent loses its server, and connects again", "TestServerLost TestServerGoesAway"},
		{"1.7 Client stream lost", "CLOSE_REQ for its connection; gauges (9.2)", "TestClientLost TestClientsConnectionLost"},
		{"1.7 Drain", "priority only; nothing un-drains; last resort", "TestDrain TestDrainingAgentIsTheLastResort TestNewerStreamOfADrainingAgent"},
		{"1.7 Drain", "our agent's own, and its end (11)", "TestAgentDrains TestLeavingOldAndNewServers"},
		{"1.7 Server shutdown, 7.8", "at once, gracefully, forced; no GOAWAY to old agents (11)", "TestServerStopsAtOnce TestServerStopsGracefully TestServerStopsAtTheEndOfItsGrace TestConnectServerStops"},
	}
}

// wrongOrders are the tables at the end of COMPAT 1.7.
func wrongOrders() []row {
	return []row{
		{"1.7 Other wrong orders", "DATA from a client before any dial", "TestDataBeforeAnyDial"},
		{"1.7 Other wrong orders", "CLOSE_REQ from a client before any dial", "TestCloseBeforeAnyDial"},
		{"1.7 Other wrong orders", "DATA or CLOSE_REQ from a client before the answer (9.2)", "TestPacketsBeforeTheAnswer"},
		{"1.7 Other wrong orders", "DATA from an agent for an unknown connection", "TestDataOfAnUnknownConnection"},
		{"1.7 Other wrong orders", "CLOSE_RSP from an agent for an unknown connection", "TestCloseResponseOfAnUnknownConnection"},
		{"1.7 Other wrong orders", "DIAL_RSP from an agent that fits no dial, or cannot be meant", "TestDialResponsesThatFitNothing"},
		{"1.7 Other wrong orders", "DATA to an agent for an unknown connection", "TestAgentDoesNotKnowTheConnection TestAgentFlushesBeforeItAnswers"},
		{"1.7 Other wrong orders", "DATA to the client library for an unknown connection: it says CLOSE_REQ and goes on", "TestClientLibraryLosesTheFirstBytes TestPacketsThatOurClientIgnores"},
		{"1.7 Other wrong orders", "CLOSE_RSP to the client library for an unknown connection", "TestPacketsThatOurClientIgnores"},
		{"1.7 Other wrong orders", "DIAL_RSP or DIAL_CLS to the client library for an unknown random", "TestOurClientsDialIsEnded"},
		{"1.7 Several connections", "a second DIAL_REQ", "TestSecondDialOnAStream TestSecondDialAfterAFailure"},
		{"1.7 Several connections", "another connection's ID", "TestMismatchedConnectionIDs"},
		{"1.7 Several connections", "after CLOSE_REQ the stream is finished", "TestCloseByClient"},
		{"1.7 Several connections", "many streams on one gRPC connection", "TestManyStreamsOnOneConnection"},
	}
}

// pressure is COMPAT 1.8, with keepalive from 7.6.
func pressure() []row {
	return []row{
		{"1.8", "order per connection", "TestOrderIsKept"},
		{"1.8", "server: a slow client blocks its agent's stream, for a bounded time (9.2)", "TestClientThatPauses TestClientThatIsStuck"},
		{"1.8", "server: a slow agent blocks its own clients only", "TestAgentThatPauses"},
		{"1.8", "agent: a slow endpoint blocks its server's stream, for a bounded time (9.2)", "TestEndpointThatPauses TestEndpointThatIsStuck TestStuckEndpointBehindTheOldServer"},
		{"1.8", "agent: a slow server blocks its endpoints", "TestServerThatPauses"},
		{"1.8", "client library: gives its reader up after 10 s", "TestClientLibraryGivesItsReaderUp"},
		{"6.2", "an old agent's duplicates; ours of an old server", "TestDuplicatesOfAnOldAgent TestDuplicatesOfOneServer TestAgentIsContentWithBothServers"},
		{"7.6", "idle streams stay; pings no faster than allowed", "TestIdleOldAgent TestAgentDoesNotPingTooOften"},
	}
}

// connects is COMPAT 2, HTTP CONNECT with old agents.
func connects() []row {
	return []row{
		{"2.1", "socket mode, TLS", "internal/transport:TestUnixSocketMode internal/transport:TestServerTLSClientCertificates"},
		{"2.2", "other methods", "TestConnectOtherMethods"},
		{"2.2", "target or Host; HTTP/1.0", "TestConnectTargets internal/server/frontconnect:TestTargets"},
		{"2.2", "bytes behind the head", "TestConnectEarlyBytes TestSocketHalfCloseDuringTheDial"},
		{"2.3", "the 200 line: 39 bytes, alone, only after the agent's answer, first (9.2)", "TestConnectOK TestConnectAnswerDataAndEndAtOnce TestSocketAnswerIsAlone"},
		{"2.4", "no backend: 503 (11)", "TestConnectNoAgent TestSocketNoAgent"},
		{"2.4", "agent stream ended while waiting: 502", "TestConnectAgentLost TestSocketAgentLost"},
		{"2.4", "backend dial timeout: 504", "TestConnectBackendDialTimeout"},
		{"2.4", "DIAL_RSP with an error: status by its words", "TestConnectDialFails internal/server/frontconnect:TestStatusOfEachReason"},
		{"2.4", "agent's DIAL_CLS: 502, where the reference says nothing", "TestConnectAgentGivesTheDialUp"},
		{"2.4", "Content-Length on every failure (11)", "TestConnectDialFails TestConnectNoAgent"},
		{"2.5", "client hangs up: CLOSE_REQ behind its data, once", "TestSocketClientHangsUp"},
		{"2.5", "client half-closes: the answer is not lost (9.2)", "TestConnectHalfClose TestSocketHalfCloseDuringTheDial"},
		{"2.5", "CLOSE_RSP: the rest, the end, and nothing more to the agent", "TestConnectCloseByEndpoint TestConnectAnswerDataAndEndAtOnce"},
		{"2.5", "agent lost", "TestConnectAgentLost TestSocketAgentLost"},
		{"2.5", "client leaves during the dial (9.2)", "TestSocketClientLeavesDuringTheDial TestSocketClientLeavesWithTheAnswer"},
		{"2.5", "server stops", "TestConnectServerStops"},
		{"1.5, 1.6, 1.7", "what agents do wrong, with CONNECT clients", "TestConnectPacketsInTheWrongOrder"},
	}
}

// mixed are the rigs of old and new peers at once.
func mixed() []row {
	return []row{
		{"mixed", "a new server with old and new agents at once, all ways in", "TestOldAndNewAgentsAtOnce TestHalfCloseWithOldAndNewAgents TestRetriesBetweenOldAndNewAgents"},
		{"mixed", "a new agent with old and new servers at once", "TestOldAndNewServersAtOnce TestStuckEndpointBehindTheOldServer TestLeavingOldAndNewServers TestAgentIsContentWithBothServers"},
	}
}

// sheet is all of it.
func sheet() (all []row) {
	for _, part := range [][]row{headersAndIDs(), whoMaySend(), sequences(), wrongOrders(), pressure(), connects(), mixed()} {
		all = append(all, part...)
	}
	return all
}

// TestSheet: every test that the table names exists, and every test is in it.
func TestSheet(t *testing.T) {
	declared := map[string]map[string]bool{".": testsIn(t, ".")}
	named := map[string]bool{"TestSheet": true}
	for _, r := range sheet() {
		for _, name := range strings.Fields(r.tests) {
			dir, test, elsewhere := strings.Cut(name, ":")
			if !elsewhere {
				dir, test = ".", name
				named[name] = true
			}
			if declared[dir] == nil {
				declared[dir] = testsIn(t, filepath.Join("../..", dir))
			}
			if !declared[dir][test] {
				t.Errorf("%s (%s): there is no %s", r.sheet, r.what, name)
			}
		}
	}
	for test := range declared["."] {
		if !named[test] {
			t.Errorf("%s is not in the table", test)
		}
	}
}

// testsIn are the names of the tests in a directory.
func testsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	names := map[string]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}
