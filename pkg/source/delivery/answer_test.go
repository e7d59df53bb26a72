package delivery

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// TestAnswers is the table of what follows from what an agent lists of a work of generation 3.
func TestAnswers(t *testing.T) {
	list := func(generation wire.Generation, hash string) wire.SpecVersion {
		return wire.SpecVersion{UID: "w", Generation: generation, ContentHash: hash}
	}
	for name, c := range map[string]struct {
		have              wire.SpecVersion
		deleting          bool
		partial, unhashed bool
		want              resyncAnswer
		intent            intent // reply for what is sent, if it is not set
		confirmed         wire.Generation
		ahead             bool
	}{
		"left out":                       {want: sendNewest},
		"the same":                       {have: list(3, "own"), confirmed: 3},
		"an older one":                   {have: list(2, "other"), want: sendNewest, confirmed: 2},
		"without a version":              {have: list(0, ""), want: sendNewest},
		"other content":                  {have: list(3, "other"), want: sendAuthoritative},
		"without a hash":                 {have: list(3, ""), confirmed: 3},
		"without a hash, asked for":      {have: list(3, ""), partial: true, want: sendNewest, confirmed: 3},
		"the same, asked for":            {have: list(3, "own"), partial: true, confirmed: 3},
		"lacking, asked for":             {have: list(0, ""), partial: true, want: sendNewest},
		"a newer one":                    {have: list(4, "own"), want: sendAuthoritative},
		"a newer one without a hash":     {have: list(4, ""), ahead: true},
		"being deleted, left out":        {deleting: true, want: sendNewest, intent: missed},
		"being deleted":                  {have: list(3, "own"), deleting: true, want: sendNewest, confirmed: 3},
		"being deleted, other content":   {have: list(3, "other"), deleting: true, want: sendNewest, confirmed: 3},
		"being deleted, a newer one":     {have: list(4, "other"), deleting: true, want: sendNewest, ahead: true},
		"no identity, other content":     {have: list(3, "other"), unhashed: true, confirmed: 3},
		"no identity, a newer one":       {have: list(4, "other"), unhashed: true, ahead: true},
		"no identity, no hash asked for": {have: list(3, ""), unhashed: true, partial: true, confirmed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			k := workKey{uid: "w", cluster: "cluster1"}
			d := testCore(0, time.Second, ClusterOpen)
			d.step(time.Now(), workChanged{k})
			d.works[k].intent = nothing
			in := &worksListed{
				cluster: k.cluster, works: []listedWork{{uid: "w", generation: 3, deleting: c.deleting, have: c.have, hash: "own"}}, partial: c.partial, hashed: !c.unhashed,
			}
			d.step(time.Now(), in)
			w := d.works[k]
			intent := c.intent
			if intent == nothing && c.want != sendNothing {
				intent = reply
			}
			if got := in.works[0].answer; got != c.want || w.intent != intent || w.authoritative != (c.want == sendAuthoritative) {
				t.Errorf("answer %q, want %q; %+v", got, c.want, w)
			}
			if stored := d.stores.byKey[storeKey{k, true}] != nil; w.confirmed != c.confirmed || stored != c.ahead {
				t.Errorf("confirmed %d, want %d; stored as ahead %t, want %t", w.confirmed, c.confirmed, stored, c.ahead)
			}
		})
	}
}

// TestMissing is the table of what follows from works that an agent lists and the source does not have.
func TestMissing(t *testing.T) {
	k := workKey{uid: "w", cluster: "cluster1"}
	for name, c := range map[string]struct {
		state    ClusterState
		removed  *removedWork
		partial  bool
		recorded bool // the agent knows it from its AppliedManifestWork alone
		held     wire.Generation
		policy   UnknownAction
		want     resyncAnswer // "": it is left out
		unknown  bool
	}{
		"unknown":                            {held: 4, want: sendDeletion, unknown: true},
		"deleted":                            {held: 4, policy: DeleteUnknown, want: sendDeletion, unknown: true},
		"held":                               {held: 4, policy: HoldUnknown, want: letKeep, unknown: true},
		"removed":                            {removed: &removedWork{generation: 5}, held: 4, policy: HoldUnknown, want: sendDeletion},
		"removed, of a paused cluster":       {removed: &removedWork{generation: 5}, state: ClusterPaused, held: 4, want: sendDeletion},
		"of a paused cluster":                {state: ClusterPaused, held: 4},
		"answered before":                    {removed: &removedWork{unknown: true}, held: 4, policy: HoldUnknown, want: letKeep, unknown: true},
		"in a partial request":               {partial: true, held: 4, want: sendDeletion, unknown: true},
		"lacking, in a partial request":      {partial: true},
		"recorded, in a partial request":     {partial: true, recorded: true, want: sendDeletion, unknown: true},
		"removed, lacking, in a partial one": {removed: &removedWork{generation: 5}, partial: true, want: sendDeletion},
	} {
		t.Run(name, func(t *testing.T) {
			d := testCore(0, time.Second, c.state)
			if c.removed != nil {
				d.ensure(k).setRemoved(c.removed)
			}
			works := d.decideMissing(k.cluster, c.partial, []wire.SpecVersion{{UID: k.uid, Generation: c.held, Recorded: c.recorded}}, func(wire.SpecVersion) UnknownAction { return c.policy })
			d.step(time.Now(), worksMissing{k.cluster, works})
			w := d.works[k]
			if (w != nil && w.intent == reply) != (c.want == sendDeletion) {
				t.Errorf("the record is %+v", w)
			}
			switch {
			case c.want == sendNothing:
				if len(works) > 0 {
					t.Errorf("answers %+v, want none", works)
				}
			case len(works) != 1 || works[0].answer != c.want || works[0].unknown != c.unknown:
				t.Errorf("answers %+v, want %q, unknown %t", works, c.want, c.unknown)
			case c.want == sendDeletion && c.removed == nil && (w.removed.meta != nil) != (c.policy == DeleteUnknown):
				t.Errorf("the deletion is %+v", w.removed)
			}
		})
	}
}
