package topicfilter

import "testing"

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		filter, topic string
		want          bool
	}{
		{"a/b", "a/b", true}, {"a/+", "a/b", true}, {"+/+", "a/b", true}, {"#", "a/b", true}, {"a/#", "a/b/c", true},
		{"a/#", "a", true}, {"a/+", "a", false}, {"a", "a/b", false}, {"a/b", "a", false}, {"+", "/a", false}, {"/+", "/a", true},
		{"+/+", "/a", true}, {"#", "$SYS/x", false}, {"+/x", "$SYS/x", false}, {"$SYS/#", "$SYS/x", true}, {"a/+/c", "a//c", true},
	} {
		if got := Match(test.filter, test.topic); got != test.want {
			t.Errorf("%q, %q: %v", test.filter, test.topic, got)
		}
	}
}
