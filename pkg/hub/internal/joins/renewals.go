package joins

import (
	"context"
	"encoding/hex"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
)

// How clusters are told to renew their certificates when another authority issues them.
const (
	authorityInterval = 10 * time.Second // between two looks at the authority
	renewInterval     = 5 * time.Minute  // until those who have not renewed are told again; until then the broker keeps what it was given
	renewPerSec       = 20               // so that a fleet does not renew at once
)

// tellToRenew tells clusters whose certificate is not of the authority that issues them now, until ctx ends.
func (j *Joins) tellToRenew(ctx context.Context) {
	if j.cfg.Authority == nil {
		return
	}
	pace := flowcontrol.NewTokenBucketRateLimiter(renewPerSec, renewPerSec)
	look := time.NewTicker(authorityInterval)
	defer look.Stop()
	var last telling
	for {
		authority, err := j.cfg.Authority()
		if err == nil && authority.Leaf != nil {
			id := hex.EncodeToString(authority.Leaf.SubjectKeyId)
			if id != last.authority {
				j.revise() // the list is to be signed by it
			}
			if now := time.Now(); last.due(id, now) {
				last = telling{authority: id, began: now, all: j.tellBehind(ctx, id, pace)}
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// telling is what was told last.
type telling struct {
	authority string // identifier of its key, in hex
	began     time.Time
	all       bool // were told. The hub often gets a certificate of the new authority at the same time, and connects again
}

// due reports whether clusters are to be told of an authority now.
func (t telling) due(authority string, now time.Time) bool {
	return authority != t.authority || !t.all || now.Sub(t.began) >= renewInterval
}

// tellBehind tells every cluster whose last certificate is valid, and of another authority, and reports whether all were told. It ends
// with the first one that cannot be told. It walks over all clusters: once when the authority has changed, and every [renewInterval].
func (j *Joins) tellBehind(ctx context.Context, authority string, pace flowcontrol.RateLimiter) (all bool) {
	told := 0
	defer func() {
		if told > 0 {
			j.cfg.Logger.Info("clusters were told to renew their certificates, which are of another authority", "clusters", told, "authority", authority)
		}
	}()
	for _, cluster := range j.cfg.Clusters.All() {
		if isRevoked(cluster) || !enrolment.Behind(j.issuedHere(cluster), authority, time.Now()) {
			continue
		}
		if pace.Wait(ctx) != nil || !j.sendAnswer(ctx, enrolment.Answer{
			Request: cluster.Name, Reason: enrolment.Renew, Authority: authority, Message: "another authority issues certificates now",
		}, time.Now().Add(renewInterval)) {
			return false
		}
		told++
	}
	return true
}

// sendAnswer signs and publishes an answer, which the broker keeps until a time; the zero time: for as long as it likes. It reports
// whether the broker has it.
func (j *Joins) sendAnswer(ctx context.Context, a enrolment.Answer, until time.Time) bool {
	hub, err := j.cfg.Certificate()
	if err == nil {
		event, signErr := a.Sign(j.cfg.Source, hub)
		if err = signErr; err == nil {
			if !until.IsZero() {
				event.SetExtension("expirytime", until)
			}
			err = j.cfg.Transport.Publish(ctx, j.topics.Answers(a.Request), event)
		}
	}
	if err != nil && ctx.Err() == nil && !j.quiet() {
		j.cfg.Logger.Warn("a cluster was not answered", "request", a.Request, "error", err)
	}
	return err == nil
}

// connected has the broker get the revocation list, which it may not have kept.
func (j *Joins) connected(context.Context, transport.Connection) { j.revise() }
