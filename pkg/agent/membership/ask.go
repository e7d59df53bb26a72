package membership

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
)

// identity returns how to connect to ask for a certificate: with the one that there is, unless the broker has refused it, else as somebody
// who may only ask.
func (m *Membership) identity() config.Config {
	broker := m.Broker()
	broker.SessionExpiry = time.Second // nothing is to wait at the broker for a connection that asks once
	if m.valid() && m.refused.Load() == 0 {
		return broker
	}
	_, token := m.held()
	broker.ClientCert, broker.ClientKey = config.PEM{}, config.PEM{}
	broker.Username, broker.Password = token.Username, token.Password
	return broker
}

// ask asks once for a certificate, over a connection that ends with it, and keeps what comes.
func (m *Membership) ask(ctx context.Context) error {
	k, err := m.keys(ctx)
	if err != nil {
		return err
	}
	_, token := m.held()
	topics, err := enrolment.TopicsOf(token.Topics, token.Source)
	if err != nil {
		return err
	}
	device, err := enrolment.DeviceOf(k.device)
	if err != nil {
		return err
	}
	request := enrolment.Request{
		ID: enrolment.NewID(), Source: token.Source, Cluster: m.cfg.Cluster, Device: device, CSR: k.csr, Token: token.ID(),
	}
	connection, err := m.cfg.Connect(m.identity(), request.ID) // the rules of Mosquitto and RabbitMQ know who asked by the client id
	if err != nil {
		return err
	}
	ctx, end := context.WithTimeout(ctx, 3*m.cfg.Patience)
	defer end()
	answers := make(chan transport.Message, 8)
	connected := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- connection.Run(ctx, transport.Handler{
			Subscriptions: []string{topics.Answers(request.ID)},
			Connected: func(context.Context, transport.Connection) {
				select {
				case connected <- struct{}{}:
				default:
				}
			},
			Received: func(_ context.Context, message transport.Message) {
				message.Ack()
				select {
				case answers <- message:
				default: // more than a hub sends
				}
			},
		})
	}()
	err = m.converse(ctx, k, request, func(r enrolment.Request) error {
		event, err := r.Sign(k.device, token.Key())
		if err != nil {
			return err
		}
		return connection.Publish(ctx, topics.Requests(), event)
	}, connected, answers)
	end()
	return errors.Join(err, <-done)
}

// converse sends a request on each connection, again with each challenge, and reads answers until one is final.
func (m *Membership) converse(
	ctx context.Context, k keys, request enrolment.Request, send func(enrolment.Request) error, connected <-chan struct{}, answers <-chan transport.Message,
) error {
	state := errors.New("the broker could not be reached, or refused this client; the lines before say why")
	silent := errors.New("the hub has not answered: it does not run, or not with --join")
	ask := func() {
		if err := send(request); err != nil {
			state = fmt.Errorf("send the request: %w", err)
		}
	}
	repeat := time.NewTicker(m.cfg.Patience / 2)
	defer repeat.Stop()
	for {
		select {
		case <-repeat.C:
			if state == silent { //nolint:errorlint // this one
				ask()
			}
		case <-ctx.Done():
			return state
		case <-connected:
			state = silent
			ask()
		case message := <-answers:
			answer, err := m.readAnswer(message, request)
			switch {
			case err != nil:
				state = fmt.Errorf("an answer that does not count: %w", err)
				m.cfg.Logger.Warn("an answer does not count", "error", err)
			case answer.Reason == enrolment.Challenged && len(request.Challenge) == 0:
				request.Challenge = answer.Challenge
				ask()
			case answer.Reason == enrolment.WaitForApproval:
				state = &Refusal{answer.Reason, answer.Message}
				m.setStatus(state)
				m.cfg.Logger.Info("waiting for approval on the hub", "cluster", m.cfg.Cluster, "do", answer.Message)
			case answer.Reason != "":
				return &Refusal{answer.Reason, answer.Message}
			default:
				return m.keep(ctx, answer, k)
			}
		}
	}
}

func (m *Membership) readAnswer(message transport.Message, request enrolment.Request) (enrolment.Answer, error) {
	if message.Err != nil {
		return enrolment.Answer{}, message.Err
	}
	secret, token := m.held()
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(trusted(secret, token))
	return enrolment.ReadAnswer(message.Event, request.ID, token.Source, authorities, time.Now())
}
