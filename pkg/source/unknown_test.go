package source

import (
	"testing"

	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

func TestDecideUnknown(t *testing.T) {
	work := wire.UIDFor("ops", "cluster1", "w")
	for name, c := range map[string]struct {
		held      wire.SpecVersion
		ephemeral bool
		since     wire.Generation
		want      delivery.UnknownAction
	}{
		"store of an unknown age":              {held: wire.SpecVersion{UID: work, Generation: 5}, want: delivery.AnswerUnknown},
		"of this store":                        {held: wire.SpecVersion{UID: work, Generation: 11}, since: 10, want: delivery.AnswerUnknown},
		"of an earlier store":                  {held: wire.SpecVersion{UID: work, Generation: 10}, since: 10, want: delivery.HoldUnknown},
		"known to the agent by UID only":       {held: wire.SpecVersion{UID: work}, since: 10, want: delivery.HoldUnknown},
		"the question whether anybody answers": {held: wire.SpecVersion{UID: "0d9f4f0e-0000-4000-8000-00000000beef"}, since: 10, want: delivery.AnswerUnknown},
		"no UUID":                              {held: wire.SpecVersion{UID: "none"}, since: 10, want: delivery.AnswerUnknown},
		"ephemeral":                            {held: wire.SpecVersion{UID: work, Generation: 10}, ephemeral: true, since: 10, want: delivery.DeleteUnknown},
	} {
		if got := decideUnknown(c.held, c.ephemeral, c.since); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
