package clusters

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/hub/internal/leadership"
)

// presenceState is whether a cluster is present and, if it is not, how that is known. It is a metric label.
type presenceState string

const (
	// unseen: the agent has never sent a message.
	unseen  presenceState = "unseen"
	present presenceState = "present"
	// ended: the agent has stopped, or its connection was lost. The broker or the agent has said
	// so.
	ended presenceState = "disconnected"
	// silent: the agent does not announce itself, and has sent no message for too long.
	silent presenceState = "silent"
	// missing: the agent announces itself, but did not when it should have, as when the hub's own
	// connection was restored.
	missing presenceState = "missing"
	// unvouched: it was present when the hub's own connection was lost, longer than a minute ago.
	unvouched presenceState = "unvouched"
)

// limits are the times by which presence is decided.
type limits struct {
	// probe is the time after the hub connected at which an agent without a message is probed.
	probe time.Duration
	// absence is the time after the hub connected, or after the last message, at which an agent
	// that announces itself and has not done so is missing.
	absence time.Duration
	// silence is the time after the last message at which another agent is silent.
	silence time.Duration
	// grace is how long a cluster is absent before it gets the taint unreachable.
	grace time.Duration
	// hubAbsence is how long the hub may be without a connection before nobody vouches for agents.
	hubAbsence time.Duration
}

// timeout returns how long p lasts without a message.
func (l limits) timeout(p presence) time.Duration {
	if p.announces {
		return l.absence
	}
	return l.silence
}

func newLimits(keepAlive, silence, grace time.Duration) limits {
	return limits{probe: keepAlive / 4, absence: keepAlive * 3 / 2, silence: silence, grace: grace, hubAbsence: leadership.HubAbsence}
}

// presence is what is known of a cluster's agent. Its methods return what is known after an event;
// they have no other effect.
//
//	present ── hubAbsent ──▶ unvouched ── expire, while the hub is connected ──▶ silent, missing
//	unseen, ended, silent, missing, unvouched ── sessionStarted, messageReceived ──▶ present
//	present ── sessionEnded ──▶ ended
//	present ── expire, while the hub is connected ──▶ silent, missing
//
// Agents that announce themselves (docs/protocol.md, Presence) have sessions: a session that has
// ended does not start again, and the end of a session before the last one says nothing. Of other
// agents only messages are known.
type presence struct {
	state presenceState
	// session is the last one that started since the hub connected, endedSession the last one that ended.
	session, endedSession string
	// vouched is whether the agent is present because it announced itself, so that its end will be
	// announced too. Otherwise it is present for a while after each message.
	vouched bool
	// announces is whether the agent is known to announce itself.
	announces bool
	// heard is the time of the last message; zero: none.
	heard time.Time
	// since is when the agent became present, or when its first message without a session came.
	since time.Time
	// until is when it stops being present unless it sends a message; zero: never.
	until time.Time
	// probeAt is when to probe it; zero: never.
	probeAt time.Time
}

// sessionStarted handles an announcement of the agent.
func (p presence) sessionStarted(session string, now time.Time) presence {
	if session == p.endedSession {
		return p // delivered twice, or late
	}
	p = p.withState(present, now)
	p.session, p.vouched, p.announces = session, true, true
	p.heard, p.until, p.probeAt = now, time.Time{}, time.Time{}
	return p
}

// sessionEnded handles the end of a session: a message of the agent, or its will.
func (p presence) sessionEnded(session string, now time.Time) presence {
	if p.session != "" && p.session != session {
		return p
	}
	unsure := p.session == "" && p.endedSession != session || p.state == present && !p.vouched
	p = p.withState(ended, now)
	if unsure {
		// The session started before the hub connected and may not have been the last one, or the agent,
		// perhaps another one by now, has sent a message since.
		p.probeAt = now
	}
	p.endedSession, p.vouched, p.announces, p.until = session, false, true, time.Time{}
	return p
}

// messageReceived handles any other message of the agent.
func (p presence) messageReceived(now time.Time, l limits) presence {
	p.heard, p.probeAt = now, time.Time{}
	if p.state == present && p.vouched && p.session != "" {
		return p
	}
	if p.vouched { // by what was known before the hub connected: it may be another agent by now
		p.vouched, p.since = false, now
	}
	p = p.withState(present, now)
	if now.Sub(p.since) >= l.absence {
		p.announces = false // it would have announced itself by now
	}
	timeout := l.timeout(p)
	p.until, p.probeAt = now.Add(timeout), now.Add(timeout/2)
	return p
}

// hubConnected handles a connection of the hub: agents may have come and gone unnoticed, in sessions that the
// hub does not know, and are expected to send a message.
func (p presence) hubConnected(now time.Time, l limits) presence {
	p.session, p.probeAt = "", now.Add(l.probe)
	if p.expected() {
		p.until = now.Add(l.timeout(p))
	}
	return p
}

// hubAbsent handles that the hub has been without a connection for too long.
func (p presence) hubAbsent(now time.Time) presence {
	if p.state == present {
		p = p.withState(unvouched, now)
		p.vouched, p.until, p.probeAt = false, time.Time{}, time.Time{}
	}
	return p
}

// expected reports whether the agent sends a message once the hub is connected.
func (p presence) expected() bool { return p.state == present || p.state == unvouched }

// expire handles the passing of time while the hub is connected. It reports whether to probe the
// agent.
func (p presence) expire(now time.Time) (_ presence, probe bool) {
	if reached(p.probeAt, now) {
		p.probeAt, probe = time.Time{}, true
	}
	if p.expected() && reached(p.until, now) {
		next := silent
		if p.announces {
			next = missing
		}
		p.announces = p.vouched || p.state == unvouched && p.announces // an agent that only sent messages would have announced itself
		p = p.withState(next, now)
		p.vouched, p.until, p.probeAt = false, time.Time{}, time.Time{}
		probe = false
	}
	return p, probe
}

// withState returns p in state s.
func (p presence) withState(s presenceState, now time.Time) presence {
	if s == present && p.state != present {
		p.since = now
	}
	p.state = s
	return p
}

// deadline returns when expire must be called; zero: never.
func (p presence) deadline() time.Time {
	if p.probeAt.IsZero() || !p.until.IsZero() && p.until.Before(p.probeAt) {
		return p.until
	}
	return p.probeAt
}

func reached(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// restorePresence returns the presence that a ManagedCluster has stored.
func restorePresence(cluster *clusterv1.ManagedCluster) presence {
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
		p.state = stateForReason(available.Reason)
	}
	return p
}
