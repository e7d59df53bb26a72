package source

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// TestPresence: the end of a session counts only if it is the last one, and one that has ended does not
// begin again.
func TestPresence(t *testing.T) {
	begin := func(session string) *wire.Presence {
		return &wire.Presence{Agent: "a-" + session, Session: session, Present: true}
	}
	end := func(session string) *wire.Presence { return &wire.Presence{Agent: "a-" + session, Session: session} }
	for name, c := range map[string]struct {
		messages []*wire.Presence // nil: another message
		want     Presence
		agent    string
	}{
		"another message":                 {[]*wire.Presence{nil}, PresenceUnknown, ""},
		"announced":                       {[]*wire.Presence{begin("1")}, PresenceConnected, "a-1"},
		"and lost":                        {[]*wire.Presence{begin("1"), end("1")}, PresenceDisconnected, "a-1"},
		"lost before it was heard":        {[]*wire.Presence{end("1")}, PresenceDisconnected, "a-1"},
		"back":                            {[]*wire.Presence{begin("1"), end("1"), begin("2")}, PresenceConnected, "a-2"},
		"the end of the one before":       {[]*wire.Presence{begin("1"), begin("2"), end("1")}, PresenceConnected, "a-2"},
		"announced late":                  {[]*wire.Presence{begin("1"), end("1"), begin("1")}, PresenceDisconnected, "a-1"},
		"a late status of one that ended": {[]*wire.Presence{begin("1"), end("1"), nil}, PresenceDisconnected, "a-1"},
	} {
		k := knownCluster{ClusterPresence: ClusterPresence{Presence: PresenceUnknown}}
		now := time.Unix(0, 0)
		for _, m := range c.messages {
			before := k.Presence
			now = now.Add(time.Second)
			k = k.after(m, now)
			if k.Since.Equal(now) != (k.Presence != before) || !k.LastHeard.Equal(now) {
				t.Errorf("%s: since %v, heard %v at %v", name, k.Since, k.LastHeard, now)
			}
		}
		if k.Presence != c.want || k.Agent != c.agent {
			t.Errorf("%s: %s by %q, want %s by %q", name, k.Presence, k.Agent, c.want, c.agent)
		}
	}
}

// TestClustersAreBounded: messages in the name of ever new clusters do not grow the client for ever.
func TestClustersAreBounded(t *testing.T) {
	c := newClusters()
	for i := range maxClusters + 10 {
		c.heard(wire.ClusterName(string(rune('a'+i%26))+time.Duration(i).String()), nil)
	}
	if n := len(c.List()); n != maxClusters {
		t.Errorf("%d clusters", n)
	}
}
