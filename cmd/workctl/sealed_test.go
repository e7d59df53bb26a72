package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/keykit"
	"github.com/workwire/workwire/test/kit/wiretap"
)

// wireBytes are what goes between a broker and its clients.
type wireBytes struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write keeps p.
func (w *wireBytes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *wireBytes) holds(value string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.all.Bytes(), []byte(value))
}

// peerKeys are the files of keys of a source and an agent.
type peerKeys struct{ signing, agentKey, trustedAgents, trustedKeys, unseal, sealKeys string }

func newPeerKeys(t *testing.T, source wire.SourceID, cluster string) peerKeys {
	t.Helper()
	dir := t.TempDir()
	k := peerKeys{dir + "/signing.key", dir + "/agent.key", dir + "/trusted-agents.yaml", dir + "/trusted-keys.yaml", dir + "/unseal.key", dir + "/seal-keys"}
	write := func(path string, data []byte, err error) {
		t.Helper()
		kit.NoError(t, errors.Join(err, os.WriteFile(path, data, 0o600)))
	}
	keykit.Write(t, k.signing, k.trustedKeys, signing.TrustedKey{Sources: []wire.SourceID{source}})
	keykit.Write(t, k.agentKey, k.trustedAgents, signing.TrustedKey{Clusters: []wire.ClusterName{wire.ClusterName(cluster)}})
	key, err := sealing.NewKey()
	kit.NoError(t, err)
	data, err := key.PEM()
	write(k.unseal, data, err)
	kit.NoError(t, os.Mkdir(k.sealKeys, 0o700))
	write(filepath.Join(k.sealKeys, cluster+".pub"), key.Public().PEM(), nil)
	return k
}

// TestSealedDirect: with keys, apply and diff show the broker no value, and believe only what the agent signs. An
// agent that requires it takes nothing in clear, and says so; what it was asked is in its audit log.
func TestSealedDirect(t *testing.T) {
	d := newDiffer(t)
	heard := &wireBytes{}
	tap, err := wiretap.Start(d.Broker.Addr, heard)
	kit.NoError(t, err)
	t.Cleanup(func() { kit.NoError(t, tap.Close()) }) // after the agent
	d.transport = "--transport=" + writeTransport(t, tap.Addr, "secret")
	k := newPeerKeys(t, "hub1", d.cluster)
	trusted, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: k.trustedKeys, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: k.agentKey, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	unsealer, err := sealing.NewUnsealer(sealing.UnsealerConfig{Files: []string{k.unseal}, Required: []wire.SourceID{"hub1"}, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	records := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{Path: records, Program: "work-agent", Logger: kit.Logger(t)})
	kit.NoError(t, err)
	d.Via(tap.Addr).StartAgent(0, func(c *agent.Config) {
		c.TrustedKeys, c.SignatureMaxAge, c.Sign, c.Unseal, c.Audit = trusted, time.Hour, signer.SignStatus, unsealer, log
	})
	sign, seal, trust := "--signing-key="+k.signing, "--seal-keys="+k.sealKeys, "--trusted-agents="+k.trustedAgents

	d.work("", configMap("settings", "k: hunter1"))
	kit.Eventually(t, "the agent answers", func() error {
		if got, text := d.run("diff", sign, seal, trust); got != cli.ExitNo || !strings.Contains(text, "would be created") {
			return errors.New(text)
		}
		return nil
	})
	d.runs(0, "✓", "apply", sign, seal, trust, "--require-sealing=*", "--timeout=1m")
	found, err := d.client.CoreV1().ConfigMaps(d.target).Get(t.Context(), "settings", metav1.GetOptions{})
	kit.NoError(t, err)
	if found.Data["k"] != "hunter1" {
		t.Errorf("the cluster has %v", found.Data)
	}
	d.work("", configMap("settings", "k: hunter2"))
	d.runs(cli.ExitNo, `data.k: "(not shown)" → "(not shown)"`, "diff", sign, seal, trust)
	for _, value := range []string{"hunter1", "hunter2"} {
		if heard.holds(value) {
			t.Errorf("the broker sees %s", value)
		}
	}

	d.runs(1, "the data is in clear, and this agent takes sealed data only", "diff", sign, trust)
	d.runs(1, "in clear, and this agent takes sealed data only", "apply", sign, trust, "--timeout=1m")
	if !heard.holds("hunter2") {
		t.Error("the tap hears nothing")
	}
	other := newPeerKeys(t, "hub1", d.cluster)
	d.runs(cli.ExitTimeout, "was refused, signature of key", "diff", sign, seal, "--trusted-agents="+other.trustedAgents, "--timeout=1s")
	d.runs(cli.ExitTimeout, "was refused, signature of key", "apply", sign, seal, "--trusted-agents="+other.trustedAgents, "--timeout=2s")
	d.runs(1, "is not sent in clear, and can not be sealed", "diff", sign, "--seal-keys="+t.TempDir(), "--require-sealing=*")
	d.runs(1, "is not sent in clear, and can not be sealed", "apply", sign, "--seal-keys="+t.TempDir(), "--require-sealing=*")
	d.runs(2, "--seal-keys needs --signing-key", "apply", seal)
	d.runs(2, "--require-sealing needs --seal-keys", "diff", "--require-sealing=*")
	d.runs(2, "--signature-max-age must be at least 1m", "diff", "--signature-max-age=1s")
	d.runs(0, "deleted", "delete", sign, seal, trust, "--timeout=1m")

	text, err := os.ReadFile(records)
	kit.NoError(t, err)
	for _, want := range []string{
		`"event":"dryrun","verdict":"answered","identity":"hub1","source":"hub1","cluster":"` + d.cluster + `","work":"web"`,
		`"event":"dryrun","verdict":"Changed"`, `"object":"configmaps ` + d.target + `/settings"`,
		`"event":"dryrun","verdict":"unsealed"`, `"reason":"clear"`, `"event":"receive","verdict":"refused"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the audit log has no %s:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "hunter") {
		t.Error("the audit log has values")
	}
}
