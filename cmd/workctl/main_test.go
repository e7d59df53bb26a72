package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const list = "certificates:\n- {name: broker, role: broker, hosts: [localhost]}\n- {name: cluster1, role: agent}\n"

// run runs the command and gives what it prints.
func run(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand(&out, &out)
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

func writeList(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "certificates.yaml")
	if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLife goes through all commands in the order of an installation's life.
func TestLife(t *testing.T) {
	config := "--config=" + writeList(t)
	for _, step := range []struct {
		args []string
		want string // a pattern
	}{
		{[]string{"ensure"}, `(?s)made the authority workwire .*broker: issued until .*cluster1: issued until`},
		{[]string{"ensure", "--renew=broker"}, `(?s)broker: issued .*asked for.*1 certificates are as they should be`},
		{[]string{"show"}, `(?s)authority workwire \w+ issues; .*cluster1 +agent +- +workwire \w+ +20.* good\n`},
		{[]string{"secret", "--name=cluster1", "--namespace=ns"}, `kind: Secret`},
		{[]string{"revoke", "--name=cluster1"}, `cluster1: 1 certificates revoked`},
		{[]string{"show"}, `(?s)1 revoked.*due: it is revoked`},
		{[]string{"ensure"}, `cluster1: issued .*revoked`},
		{[]string{"rotate-authority", "--step=trust"}, `(?s)made the next authority .*go on with --step=issue`},
		{[]string{"rotate-authority", "--step=issue"}, `(?s)issues from now on.*go on with --step=drop`},
		{[]string{"rotate-authority", "--step=drop"}, `is not trusted any more`},
		{[]string{"rotate-authority", "--step=drop"}, `nothing to do`},
	} {
		out, err := run(t.Context(), t, append([]string{"certs"}, append(step.args, config)...)...)
		if err != nil || !regexp.MustCompile(step.want).MatchString(out) {
			t.Errorf("%q: %v, want %q:\n%s", step.args, err, step.want, out)
		}
	}
}

func TestFaults(t *testing.T) {
	config := "--config=" + writeList(t)
	for want, args := range map[string][]string{
		"--config is required":                 {"ensure"},
		"--owner \"root\"":                     {"ensure", config, "--owner=root"},
		"--every":                              {"ensure", config, "--every=1ms"},
		"again and again":                      {"ensure", config, "--every=1h", "--renew=all"},
		"is not in the list":                   {"ensure", config, "--renew=nobody"},
		"--name is required":                   {"secret", config},
		"--namespace is required":              {"secret", config},
		"--step \"\"":                          {"rotate-authority", config},
		"there is no authority yet":            {"show", config},
		"See workctl certs revoke --help":      {"revoke", config},
		"unknown command \"enshure\" for":      {"enshure"},
		"list of certificates /dev/null: cert": {"show", "--config=/dev/null"},
	} {
		if _, err := run(t.Context(), t, append([]string{"certs"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestEvery does it again, and follows the list.
func TestEvery(t *testing.T) {
	path, dir := writeList(t), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := run(ctx, t, "certs", "ensure", "--config="+path, "--dir="+dir, "--every=1s")
		ended <- err
	}()
	await := func(name string) {
		t.Helper()
		for {
			if _, err := os.Stat(filepath.Join(dir, name, "tls.crt")); err == nil {
				return
			}
			select {
			case <-ctx.Done():
				t.Fatalf("%s does not come", name)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	await("cluster1")
	if err := os.WriteFile(path+".new", []byte(list+"- {name: cluster2, role: agent}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	await("cluster2")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
