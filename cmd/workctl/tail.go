package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/tail"
	"github.com/workwire/workwire/pkg/wire"
)

func tailCommand(o *cli.Options) *cobra.Command {
	var (
		format                cli.FormatFlag
		role, cluster, source string
		filter                tail.Filter
		data, secrets         bool
	)
	cmd := leaf(&cobra.Command{
		Use:   "tail [--cluster=NAME] [--work=NAME] [--source=ID] [--kind=KIND]",
		Short: "Show the events between sources and agents as they pass the broker",
		Long: "Prints a line for each event until it is interrupted. It listens with a clean session and QoS 0, so that it takes nothing\n" +
			"from anybody. The transport configuration is that of an observer, which may read everything; with --as that of a\n" +
			"source or an agent, which may read what they receive. Payloads are not shown, only their size and digest.",
		Example: "  workctl tail --transport=observer.yaml --cluster=cluster1 --kind=spec,status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := tail.Config{Role: tail.Role(role), Filter: filter}
			c.Filter.Cluster, c.Filter.Source = wire.ClusterName(cluster), wire.SourceID(source)
			if err := validateTail(c); err != nil {
				return err
			}
			if secrets {
				c.Payload = tail.FullPayload
			} else if data {
				c.Payload = tail.RedactedPayload
			}
			var err error
			if c.Broker, err = o.Broker(); err != nil {
				return err
			}
			var printed error
			c.Emit = func(e tail.Event) {
				if printed == nil {
					printed = printEvent(o, format.Format(), e)
				}
			}
			c.Listening = func() { _, _ = fmt.Fprintln(o.Err, "listening, ^C ends") }
			if err := tail.Run(cmd.Context(), c); err != nil {
				return err
			}
			return printed
		},
	})
	fs := cmd.Flags()
	fs.StringVar(&role, "as", string(tail.Observer), "whose transport configuration it is: observer, source or agent; an agent needs --cluster")
	fs.StringVar(&cluster, "cluster", "", "show the events of this cluster only (default: all)")
	fs.StringVar(&source, "source", "", "show the events of this source only (default: all)")
	fs.StringVar(&filter.Work, "work", "", "show the events of the work with this name or UID only (default: all)")
	fs.StringSliceVar(&filter.Kinds, "kind", nil, "show these kinds only, comma-separated: "+strings.Join(tail.Kinds, ", ")+" (default: all)")
	fs.BoolVar(&data, "data", false, "show payloads, without the values of Secrets")
	fs.BoolVar(&secrets, "secrets", false, "show payloads with the values of Secrets")
	format.Add(cmd, cli.Table, cli.Wide, cli.JSON, cli.YAML, cli.JSONPath)
	return cmd
}

func validateTail(c tail.Config) error {
	if !slices.Contains([]tail.Role{tail.Observer, tail.Source, tail.Agent}, c.Role) {
		return cli.Usagef("--as must be observer, source or agent, got %q", c.Role)
	}
	if c.Role == tail.Agent && c.Filter.Cluster == "" {
		return cli.Usagef("--as=agent needs --cluster: the agent's cluster")
	}
	for _, kind := range c.Filter.Kinds {
		if !slices.Contains(tail.Kinds, kind) {
			return cli.Usagef("--kind must be some of %s, got %q", strings.Join(tail.Kinds, ", "), kind)
		}
	}
	return nil
}

// printEvent prints an event as a line of JSON or of text, as a document of YAML, or as a template says.
func printEvent(o *cli.Options, format cli.Format, e tail.Event) error {
	switch format {
	case cli.Table, cli.Wide:
		_, err := fmt.Fprintln(o.Out, cli.OneLine(line(e, format == cli.Wide)))
		return err
	case cli.JSON:
		return json.NewEncoder(o.Out).Encode(e)
	case cli.YAML:
		if _, err := fmt.Fprintln(o.Out, "---"); err != nil {
			return err
		}
	}
	return cli.WriteJSON(o.Out, format, e)
}

// line is an event for people.
func line(e tail.Event, wide bool) string {
	delay := "-"
	if !e.Sent.IsZero() {
		delay = e.Received.Sub(e.Sent).Round(time.Millisecond).String()
	}
	work := e.Work
	if work == "" {
		work = e.UID
	}
	if e.Generation > 0 {
		work += fmt.Sprintf(" gen %d", e.Generation)
	}
	text := fmt.Sprintf("%s %-13s %s %s %s %dB +%s %s", e.Received.UTC().Format("15:04:05.000"), e.Kind, orDash(e.Source), orDash(e.Cluster), orDash(work), e.Size, delay, e.Summary)
	if wide {
		text += fmt.Sprintf(" topic %s uid %s digest %s", e.Topic, orDash(e.UID), orDash(e.Digest))
	}
	if e.Data != nil {
		text += " " + string(e.Data)
	}
	return text
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
