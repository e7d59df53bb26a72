package source_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPages: all pages of a list show the works as they were at the first one.
func TestPages(t *testing.T) {
	c := offline(t)
	ctx := t.Context()
	all := c.ManifestWorks("")
	for i := range 7 {
		must(t)(c.ManifestWorks(fmt.Sprintf("cluster%d", i%2)).Create(ctx, configMap(fmt.Sprintf("w%d", i), "x"), metav1.CreateOptions{}))
	}
	var seen []string
	opts := metav1.ListOptions{Limit: 3}
	for {
		list, err := all.List(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, work := range list.Items {
			seen = append(seen, work.Namespace+"/"+work.Name)
		}
		if left := list.RemainingItemCount; (left == nil) != (list.Continue == "") || left != nil && int(*left) != 7-len(seen) {
			t.Errorf("%v left after %d, continue %q", left, len(seen), list.Continue)
		}
		if list.Continue == "" {
			break
		}
		opts.Continue = list.Continue
		// Neither shows in this list.
		must(t)(c.ManifestWorks("cluster1").Create(ctx, configMap(fmt.Sprintf("a%d", len(seen)), "x"), metav1.CreateOptions{}))
		if err := c.ManifestWorks("cluster1").Delete(ctx, "w5", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(seen, " "); got != "cluster0/w0 cluster0/w2 cluster0/w4 cluster0/w6 cluster1/w1 cluster1/w3 cluster1/w5" {
		t.Errorf("the pages show %s", got)
	}
	labelled := must(t)(c.ManifestWorks("cluster0").Get(ctx, "w6", metav1.GetOptions{}))
	labelled.Labels = map[string]string{"app": "x"}
	must(t)(c.ManifestWorks("cluster0").Update(ctx, labelled, metav1.UpdateOptions{}))
	list, err := all.List(ctx, metav1.ListOptions{Limit: 1, LabelSelector: "app=x"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "w6" || list.Continue != "" {
		t.Errorf("by label: %+v, %v", list, err)
	}

	first, err := all.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]struct {
		opts metav1.ListOptions
		is   func(error) bool
	}{
		"rubbish":             {metav1.ListOptions{Continue: "!"}, apierrors.IsBadRequest},
		"no token":            {metav1.ListOptions{Continue: "e30"}, apierrors.IsBadRequest},
		"with a version":      {metav1.ListOptions{Continue: first.Continue, ResourceVersion: first.ResourceVersion}, apierrors.IsBadRequest},
		"with a match":        {metav1.ListOptions{Continue: first.Continue, ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsBadRequest},
		"of no version there": {metav1.ListOptions{Continue: "eyJ2IjoxMDAwMDAwLCJucyI6ImEiLCJuIjoiYiJ9"}, apierrors.IsResourceExpired},
	} {
		if _, err := all.List(ctx, q.opts); !q.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.ManifestWorks("cluster1").List(ctx, metav1.ListOptions{Continue: first.Continue}); !apierrors.IsBadRequest(err) {
		t.Errorf("a token of another namespace: %v", err)
	}
	work := must(t)(c.ManifestWorks("cluster0").Get(ctx, "w0", metav1.GetOptions{}))
	for i := range 4097 {
		work.Labels = map[string]string{"n": fmt.Sprint(i)}
		work = must(t)(c.ManifestWorks("cluster0").Update(ctx, work, metav1.UpdateOptions{}))
	}
	if _, err := all.List(ctx, metav1.ListOptions{Continue: first.Continue}); !apierrors.IsResourceExpired(err) {
		t.Errorf("after 4097 changes: %v", err)
	}
}
