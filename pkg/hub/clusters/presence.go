package clusters

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

// state says whether a cluster is there, and if it is not, how that is known. It
// labels a metric.
type state string

const (
	// unseen: its agent was never heard from.
	unseen  state = "unseen"
	present state = "present"
	// ended: its agent has stopped, or its connection is lost. The broker, or the
	// agent itself, has said so.
	ended state = "disconnected"
	// silent: its agent announces nothing, and was not heard from for too long.
	silent state = "silent"
	// missing: its agent, one that announces itself, did not when it should have, as
	// when the hub's own connection was restored.
	missing state = "missing"
)

// limits are the times by which presence is decided.
type limits struct {
	// ask: an agent that has not shown so long after the hub connected is asked.
	ask time.Duration
	// absence: an agent of those that announce themselves is missing if it has not
	// done so this long after the hub connected, or after its last message.
	absence time.Duration
	// silence: an agent that announces nothing is gone so long after its last
	// message.
	silence time.Duration
}

// waits is how long p holds without a sign of life.
func (l limits) waits(p presence) time.Duration {
	if p.announces {
		return l.absence
	}
	return l.silence
}

func newLimits(keepAlive, silence time.Duration) limits {
	return limits{ask: keepAlive / 4, absence: keepAlive * 3 / 2, silence: silence}
}

// presence is what is known of a cluster's agent. Its methods give what is known
// after something has happened; they have no other effect.
//
//	unseen, ended, silent, missing ── announced, spoke ──▶ present
//	present ── left ──▶ ended
//	present ── at, the hub being connected ──▶ silent, missing
//
// Agents that announce themselves (docs/protocol.md, Presence) have sessions: one
// that has ended does not begin again, and the end of an older one than the last
// says nothing. Of other agents only messages tell.
type presence struct {
	state state
	// session that was announced last, and closed, the one whose end was told last.
	session, closed string
	// vouched: the agent is present since it has announced itself, so its end will be
	// told. Otherwise it is present since it was heard, for a while.
	vouched bool
	// announces: the agent is one that announces itself, as far as that is known.
	announces bool
	// heard is when the agent last gave a sign of life; zero: it never did.
	heard time.Time
	// since is when it became present, or was heard first without being vouched for.
	since time.Time
	// until is when it stops being present unless it is heard before; zero: never.
	until time.Time
	// askAt is when to ask it for a sign of life; zero: never.
	askAt time.Time
}

// announced is called for an agent's word that it is there, in session.
func (p presence) announced(session string, now time.Time) presence {
	if session == p.closed {
		return p // delivered once more, or late
	}
	p = p.is(present, now)
	p.session, p.vouched, p.announces = session, true, true
	p.heard, p.until, p.askAt = now, time.Time{}, time.Time{}
	return p
}

// left is called for the end of session: an agent's good bye, or its will.
func (p presence) left(session string, now time.Time) presence {
	if p.session != "" && p.session != session {
		return p
	}
	unsure := p.session == "" && p.closed != session || p.state == present && !p.vouched
	p = p.is(ended, now)
	if unsure {
		// It began before this process did, and need not be the last of those; or
		// the agent, perhaps another one by now, has been heard since.
		p.askAt = now
	}
	p.closed, p.vouched, p.announces, p.until = session, false, true, time.Time{}
	return p
}

// spoke is called for any other message of the agent.
func (p presence) spoke(now time.Time, l limits) presence {
	p.heard, p.askAt = now, time.Time{}
	if p.state == present && p.vouched && p.session != "" {
		p.until = time.Time{}
		return p
	}
	if p.vouched { // but by what was stored: it may be another agent by now
		p.vouched, p.since = false, now
	}
	p = p.is(present, now)
	if now.Sub(p.since) >= l.absence {
		p.announces = false // it would have
	}
	wait := l.waits(p)
	p.until, p.askAt = now.Add(wait), now.Add(wait/2)
	return p
}

// connected is called when the hub has connected: agents may have come and gone
// unnoticed, and are to show themselves.
func (p presence) connected(now time.Time, l limits) presence {
	p.askAt = now.Add(l.ask)
	if p.state == present {
		p.until = now.Add(l.waits(p))
	}
	return p
}

// at is called as time goes by, while the hub is connected. It tells whether the
// agent is to be asked for a sign of life.
func (p presence) at(now time.Time) (_ presence, ask bool) {
	if due(p.askAt, now) {
		p.askAt, ask = time.Time{}, true
	}
	if p.state == present && due(p.until, now) {
		next := silent
		if p.announces {
			next = missing
		}
		p = p.is(next, now)
		p.announces = p.vouched // else it was heard, and would have announced itself
		p.vouched, p.until, p.askAt = false, time.Time{}, time.Time{}
		ask = false
	}
	return p, ask
}

// is gives p in state s.
func (p presence) is(s state, now time.Time) presence {
	if s == present && p.state != present {
		p.since = now
	}
	p.state = s
	return p
}

// next is when at has something to say; zero: never.
func (p presence) next() time.Time {
	if p.askAt.IsZero() || !p.until.IsZero() && p.until.Before(p.askAt) {
		return p.until
	}
	return p.askAt
}

func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// restored is what is known of a cluster when the hub starts: what was stored.
func restored(cluster *clusterv1.ManagedCluster) presence {
	p := presence{state: unseen, announces: cluster.Annotations[AnnouncesAnnotationKey] == "true"}
	if at, err := time.Parse(time.RFC3339, cluster.Annotations[clusterv1.LastSeenAnnotationKey]); err == nil {
		p.heard = at
	}
	available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case available == nil:
	case available.Status == metav1.ConditionTrue:
		p.state, p.since, p.vouched = present, available.LastTransitionTime.Time, p.announces
	default:
		p.state = stateOf(available.Reason)
	}
	return p
}
