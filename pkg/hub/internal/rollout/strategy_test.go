package rollout_test

import (
	"encoding/json"
	"strings"
	"testing"

	kubejson "k8s.io/apimachinery/pkg/util/json"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

func TestParseRejects(t *testing.T) {
	tests := map[string]struct {
		json string
		want []string
	}{
		"two types":       {`{"type":"All","rolloutType":"Progressive"}`, []string{"rolloutType is Progressive and type is All"}},
		"unknown type":    {`{"type":"Canary"}`, []string{`rolloutType is "Canary": must be All, Progressive or ProgressivePerGroup`}},
		"negative":        {`{"type":"Progressive","progressive":{"maxConcurrency":-1}}`, []string{`progressive.maxConcurrency is "-1"`}},
		"over 100%":       {`{"type":"Progressive","progressive":{"maxFailures":"101%"}}`, []string{`progressive.maxFailures is "101%"`}},
		"signed":          {`{"type":"Progressive","progressive":{"maxFailures":"+1"}}`, []string{`"+1"`}},
		"text":            {`{"type":"ProgressivePerGroup","progressivePerGroup":{"maxFailures":"few"}}`, []string{`progressivePerGroup.maxFailures is "few"`}},
		"empty":           {`{"type":"Progressive","progressive":{"maxFailures":""}}`, []string{`progressive.maxFailures is ""`}},
		"deadline":        {`{"all":{"progressDeadline":"never"}}`, []string{`all.progressDeadline is "never": must be None or a time`}},
		"no deadline":     {`{"all":{"progressDeadline":"0s"}}`, []string{`all.progressDeadline is "0s"`}},
		"negative time":   {`{"all":{"minSuccessTime":"-1m"}}`, []string{`all.minSuccessTime is -1m0s: must not be negative`}},
		"all at once":     {`{"all":{"minSuccessTime":"-1m","progressDeadline":"x","maxFailures":-1}}`, []string{"minSuccessTime", "progressDeadline", "maxFailures"}},
		"also with mc":    {`{"type":"Progressive","progressive":{"maxConcurrency":"x","maxFailures":"y"}}`, []string{"maxConcurrency", "maxFailures"}},
		"more than int32": {`{"type":"Progressive","progressive":{"maxFailures":"4294967296"}}`, []string{"maxFailures"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var from clusterv1alpha1.RolloutStrategy
			if err := kubejson.Unmarshal([]byte(test.json), &from); err != nil {
				t.Fatal(err)
			}
			_, err := rollout.Parse(&from)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range append(test.want, "rollout strategy: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

// Parse ignores the options of other types, valid or not.
func TestParseIgnoresOptionsOfOtherTypes(t *testing.T) {
	for _, text := range []string{
		`{"progressive":{"maxFailures":"few"}}`,
		`{"type":"Progressive","all":{"maxFailures":"few"}}`,
		`{"type":"ProgressivePerGroup","progressive":{"maxFailures":"few"}}`,
	} {
		var from clusterv1alpha1.RolloutStrategy
		if err := kubejson.Unmarshal([]byte(text), &from); err != nil {
			t.Fatal(err)
		}
		if _, err := rollout.Parse(&from); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzParse checks that Parse rejects a strategy, or that its decisions satisfy the invariants of
// all decisions.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"type":"Progressive","progressive":{"maxConcurrency":"10%","maxFailures":2,"progressDeadline":"5m"}}`,
		`{"rolloutType":"ProgressivePerGroup","progressivePerGroup":{"mandatoryDecisionGroups":[{"groupName":"w"},{"groupIndex":-1}]}}`,
		`{"type":"Progressive","progressive":{"maxConcurrency":"2147483647","maxFailures":"100%","minSuccessTime":"2562047h"}}`,
		`{"type":"Progressive","progressive":{"maxConcurrency":"099%","progressDeadline":"1ns"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var from clusterv1alpha1.RolloutStrategy
		if json.Unmarshal([]byte(text), &from) != nil {
			t.Skip("no strategy")
		}
		strategy, err := rollout.Parse(&from)
		if err != nil {
			return
		}
		groups := groupsFrom("w: a b c | d e f")
		clusters := clustersFrom(t, "a=S3m b=P~5m c=F2m^1m d=~ e=K f=P3m")
		decision := strategy.Decide(groups, clusters, now)
		checkLists(t, groups, clusters, decision)
	})
}
