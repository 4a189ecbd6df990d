package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygnmi/ygnmi"
	"github.com/openconfig/ygot/ygot"

	"holdfast/tests/clients/ygnmi/oc"
	"holdfast/tests/clients/ygnmi/oc/ocpath"
)

// stateLimit is the time in which the state of the box has to follow its configuration. The kernel tells of a change within
// milliseconds, and LACP takes some seconds to choose members.
const stateLimit = 20 * time.Second

// box is the target of a case, in one form of requests.
type box struct {
	ctx    context.Context
	client *ygnmi.Client
	form   form
	// before is the configuration of the last request.
	before *oc.Root
}

func newBox(ctx context.Context, client *ygnmi.Client, form form) *box {
	return &box{ctx: ctx, client: client, form: form, before: &oc.Root{}}
}

// clear deletes what an earlier case has left, whatever it was.
func (b *box) clear() error {
	batch := &ygnmi.SetBatch{}
	ygnmi.BatchDelete(batch, ocpath.Root().Lacp().InterfaceMap().Config())
	ygnmi.BatchDelete(batch, ocpath.Root().InterfaceMap().Config())
	return b.request("deleting the containers", batch, &oc.Root{})
}

// set brings the box to a configuration by one request in the form of this box.
func (b *box) set(step string, wanted *oc.Root) error {
	batch := &ygnmi.SetBatch{}
	b.form.fill(batch, b.before, wanted)
	return b.request(step, batch, wanted)
}

// request sends a batch, and compares configuration and state of the box with what they have to be then.
func (b *box) request(step string, batch *ygnmi.SetBatch, wanted *oc.Root) error {
	if _, err := batch.Set(b.ctx, b.client); err != nil {
		return fmt.Errorf("%s: the agent refused: %w\n%s", step, err, batch)
	}
	before := b.before
	b.before = wanted
	if err := b.checkConfig(wanted); err != nil {
		return fmt.Errorf("%s: %w\n%s", step, err, batch)
	}
	if err := b.checkState(before, wanted); err != nil {
		return fmt.Errorf("%s: %w\n%s", step, err, batch)
	}
	return nil
}

// checkConfig compares the configuration, as Get and as Subscribe ONCE tell of it. The latter has the keys of entries that
// exist in state alone, too.
func (b *box) checkConfig(wanted *oc.Root) error {
	if err := b.compareConfig(wanted, ygnmi.WithUseGet()); err != nil {
		return fmt.Errorf("Get: %w", err)
	}
	if err := b.compareConfig(wanted); err != nil {
		return fmt.Errorf("Subscribe: %w", err)
	}
	return nil
}

func (b *box) compareConfig(wanted *oc.Root, options ...ygnmi.Option) error {
	got, err := b.readConfig(options...)
	if err != nil {
		return err
	}
	removeShells(got)
	if different := cmp.Diff(wanted, got, cmpopts.EquateEmpty()); different != "" {
		return fmt.Errorf("the configuration is another one (-wanted +shown):\n%s", different)
	}
	return nil
}

func (b *box) readConfig(options ...ygnmi.Option) (*oc.Root, error) {
	root := &oc.Root{}
	interfaces, err := lookup(b, ocpath.Root().InterfaceMap().Config(), options...)
	if err != nil {
		return nil, err
	}
	root.Interface = interfaces
	if root.Lacp, err = lookup(b, ocpath.Root().Lacp().Config(), options...); err != nil {
		return nil, err
	}
	return root, nil
}

// lookup returns the value of a path, or the zero value when the box has none. A value that the modules do not allow is an error.
func lookup[T any](b *box, query ygnmi.SingletonQuery[T], options ...ygnmi.Option) (T, error) {
	var none T
	value, err := ygnmi.Lookup(b.ctx, b.client, query, options...)
	if err != nil {
		return none, err
	}
	if value.ComplianceErrors != nil {
		return none, fmt.Errorf("the answer is not of the modules: %v", value.ComplianceErrors)
	}
	got, _ := value.Val()
	return got, nil
}

// checkState waits until the box has what is configured, and has lost what no longer is.
func (b *box) checkState(before, wanted *oc.Root) error {
	for name, it := range wanted.Interface {
		if err := await(b, ocpath.Root().Interface(name).State(), func(state *oc.Interface) error {
			return differenceOf(before.Interface[name], it, membersOf(wanted, name), state)
		}); err != nil {
			return fmt.Errorf("state of %s: %w", name, err)
		}
	}
	for name, it := range before.Interface {
		if _, stays := wanted.Interface[name]; stays {
			continue
		}
		if err := await(b, ocpath.Root().Interface(name).State(), func(state *oc.Interface) error {
			if state != nil && it.Type != oc.IETFInterfaces_InterfaceType_ethernetCsmacd {
				return errors.New("the link is still there")
			}
			return differenceOf(it, &oc.Interface{}, nil, state)
		}); err != nil {
			return fmt.Errorf("state of %s, which was deleted: %w", name, err)
		}
	}
	for name, it := range lacpOf(wanted) {
		if wanted.Interface[name] == nil {
			continue // the entry waits for its bond
		}
		if err := await(b, ocpath.Root().Lacp().Interface(name).State(), func(state *oc.Lacp_Interface) error {
			return missing(it, state)
		}); err != nil {
			return fmt.Errorf("state of LACP of %s: %w", name, err)
		}
	}
	return nil
}

// await watches a path until the state is as it has to be. `accepts` gets nil when the box has no state there.
func await[T ygot.GoStruct](b *box, query ygnmi.SingletonQuery[T], accepts func(T) error) error {
	ctx, cancel := context.WithTimeout(b.ctx, stateLimit)
	defer cancel()
	var last error
	_, err := ygnmi.Watch(ctx, b.client, query, func(value *ygnmi.Value[T]) error {
		if value.ComplianceErrors != nil {
			return fmt.Errorf("an update is not of the modules: %v", value.ComplianceErrors)
		}
		state, _ := value.Val()
		if last = accepts(state); last != nil {
			return ygnmi.Continue
		}
		return nil
	}).Await()
	if err != nil && last != nil {
		return fmt.Errorf("%w; at last: %w", err, last)
	}
	return err
}

// differenceOf says what keeps the state of an interface from being the wanted one, after it was configured otherwise. Members
// are the ports that a bond has to have.
func differenceOf(before, wanted *oc.Interface, members []string, state *oc.Interface) error {
	if state == nil {
		if wanted.Name == nil {
			return nil
		}
		return errors.New("the box has no such interface")
	}
	if wanted.Name != nil {
		if err := missing(wanted, state); err != nil {
			return err
		}
	}
	if before.GetDescription() != "" && wanted.Description == nil && state.Description != nil {
		return fmt.Errorf("the description is still %q", *state.Description)
	}
	if aggregateOf(wanted) == nil && aggregateOf(state) != nil {
		return fmt.Errorf("the port is still a member of %q", *aggregateOf(state))
	}
	for index, sub := range state.Subinterface {
		if index != 0 && wanted.Subinterface[index] == nil {
			return fmt.Errorf("subinterface %d is still there", index)
		}
		if has, may := addressesOf(sub), addressesOf(wanted.Subinterface[index]); !slices.Equal(has, may) {
			return fmt.Errorf("subinterface %d has the addresses %v, not %v", index, has, may)
		}
	}
	if wanted.GetAggregation() != nil {
		has := slices.Sorted(slices.Values(state.GetAggregation().GetMember()))
		if !slices.Equal(has, members) {
			return fmt.Errorf("the members are %v, not %v", has, members)
		}
	}
	return nil
}

// missing names the leaves that the state has not, or with another value.
func missing(wanted, state ygot.GoStruct) error {
	if reflect.ValueOf(state).IsNil() {
		return errors.New("the box has no such entry")
	}
	difference, err := ygot.Diff(wanted, state, &ygot.IgnoreAdditions{})
	if err != nil {
		return err
	}
	var leaves []string
	for _, path := range difference.GetDelete() {
		leaves = append(leaves, textOf(path)+" is absent")
	}
	for _, update := range difference.GetUpdate() {
		leaves = append(leaves, fmt.Sprintf("%s is %v", textOf(update.GetPath()), update.GetVal()))
	}
	if len(leaves) == 0 {
		return nil
	}
	return errors.New(strings.Join(leaves, ", "))
}

// textOf returns the path of a leaf of state. The structures know it by the path of its configuration.
func textOf(path *gnmi.Path) string {
	text, err := ygot.PathToString(path)
	if err != nil {
		return path.String()
	}
	return strings.ReplaceAll(text, "/config/", "/state/")
}

// addressesOf returns addresses with their prefix lengths. Link-local ones of IPv6 are left out, because the kernel makes them.
func addressesOf(sub *oc.Interface_Subinterface) []string {
	var all []string
	for ip, address := range ipv4Of(sub) {
		all = append(all, fmt.Sprintf("%s/%d", ip, address.GetPrefixLength()))
	}
	for ip, address := range ipv6Of(sub) {
		if parsed, err := netip.ParseAddr(ip); err != nil || !parsed.IsLinkLocalUnicast() {
			all = append(all, fmt.Sprintf("%s/%d", ip, address.GetPrefixLength()))
		}
	}
	slices.Sort(all)
	return all
}

// membersOf returns the ports that a configuration puts into a bond.
func membersOf(root *oc.Root, bond string) []string {
	var members []string
	for name, it := range root.Interface {
		if aggregate := aggregateOf(it); aggregate != nil && *aggregate == bond {
			members = append(members, name)
		}
	}
	slices.Sort(members)
	return members
}
