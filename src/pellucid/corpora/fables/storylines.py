r"""The nine storylines and their morals. Each can end in two ways, and the ending decides the moral.

`story` writes the beginning of a storyline's first sentence: "One cold morning, {hero} [storyline]".
"""

MORALS = {
    "sharing": "What we share comes back to us.",
    "greed": "Those who keep everything may end with nothing.",
    "patience": "Slow and steady goes far.",
    "kindness": "It is better to be kind than to be first.",
    "honesty": "It takes courage to own a fault.",
    "lies": "A liar is not believed even when telling the truth.",
    "help": "No good turn is ever wasted.",
    "mercy": "Answer an unkind deed with a kind one.",
    "flattery": "Sweet words are often after your supper.",
    "plainness": "Ask plainly, and you need not flatter.",
    "work": "Gather in the sun, and you need not fear the snow.",
    "idleness": "A summer of play can make a winter of hunger.",
    "quarrel": "While two quarrel over a thing, a third one takes it.",
    "agreement": "Half of a treasure and a friend is more than all of it.",
    "nature": "Be content to be what you are.",
    "envy": "The neighbour whom you envy may be envying you.",
    "promise": "Whoever keeps a small promise is trusted with a great one.",
    "trust": "Trust is quickly lost and slowly found again.",
}

STORYLINES = r"""
storyline
    6 [sharing]
    5 [race]
    5 [theft]
    5 [trap]
    5 [flattery]
    5 [winter]
    5 [quarrel]
    4 [wish]
    5 [promise]

# ------------------------------------------------------------------ sharing

sharing
    4 found [count:number] [ripe] [thing:fruits] [under a hedge]. [beggar]
    2 was carrying home [count:number] [ripe] [thing:fruits] in a [little] [basket]. [beggar]
    2 came home with [count:number] [ripe] [thing:fruits] and a [little] [treasure]. [beggar]

under a hedge
    4 under a hedge
    3 in the long grass
    2 behind the barn
    1 on a flat stone

basket
    3 basket
    2 bag

beggar
    1 [Visitor] "[Please]," [said other], "[plea]" [sharing outcome]

please
    3 please, {hero}
    2 dear {hero}
    2 kind {hero}
    1 good {hero}

plea
    3 I have not eaten today.
    3 my little ones are hungry.
    2 may I taste your {thing}s?

sharing outcome
    5 [shares] [Later], when [hard times], it was {other} who [came to help]. [Friends]\nMoral:
        {moral.sharing}
    4 [refuses] But [in the night] [thieves came], and nothing was left. [Lesson]\nMoral: {moral.greed}

shares
    3 {Hero} [thought it over] and gave {other.him} [gift:some of {count}] of the {count}, so that {gift.left}
        {gift.were} left.
    3 "Take [gift:some of {count}]," [said hero], "and {gift.left} will be left for me."
    2 ["Gladly]," [said hero], and counted out [gift:some of {count}] {thing}{gift.s}. The other {gift.left}
        {hero.he} kept.

thought it over
    3 thought it over
    2 nodded
    2 smiled
    1 sighed

"Gladly
    3 "Gladly
    2 "Of course
    1 "Why not

hard times
    3 {hero} lay ill {hero.home}
    3 snow covered the hills
    2 a storm broke {hero.his} roof

came to help
    5 came with [presents]
    2 brought [presents]
    2 was the first to help
    2 {other.gait} through the rain to help

refuses
    3 ["Mine]," [said hero], and {other} {other.gait} away [hungry]. {Hero} ate [gift:some of {count}]
        {thing}{gift.s} [in a hurry] and hid the other {gift.left}.
    2 But {hero} [turned away] and said nothing. {Hero.he} ate [gift:some of {count}] {thing}{gift.s}
        [in a hurry], and {gift.left} {gift.were} left. {Hero} hid {gift.them} [with care].

"Mine
    3 "Nobody helps me
    3 "They are mine, every one
    2 "Go and find your own

hungry
    3 hungry
    2 sadly

in a hurry
    3 in a hurry
    2 at once
    1 alone

turned away
    3 turned away
    2 looked away

with care
    3 with care
    2 under the bed

in the night
    3 in the night
    2 while {hero.he} slept

thieves came
    3 thieves came
    3 the river rose
    2 it rained through the roof

# ------------------------------------------------------------------ race

race
    3 met {hero.his} [old] rival[other:rival of {hero.kind}], {other.a}{hero.rival} named [other:other name],
        with [presents]. "[Boast]," [said hero]. "[Come], let us race to the [goal:landmark]!" [race begins]
    2 was boasting [again]. "[Boast]," [said hero]. But {hero.his} [old] rival[other:rival of {hero.kind}],
        {other.a}{hero.rival} named [other:other name], came by with [presents]. "Then race me to the
        [goal:landmark]!" [said other]. [race begins]

old
    3 old
    2 great
    1 only

again
    3 again
    2 loudly

boast
    3 nobody is as quick as I am
    3 I could win a race on one leg
    2 no one has ever passed me
    2 I am faster than the wind

come
    3 come
    1 well then

landmark
    4 old bridge
    3 tall elm
    3 mill
    3 white gate
    2 village well
    2 church
    1 barn

race begins
    1 [Few] days later [they set off], and {hero} was soon [far] ahead. [Halfway there], {hero.he}
        [race outcome]

they set off
    4 they set off
    2 they were off
    2 the race began

far
    3 far
    2 a long way
    1 well

halfway there
    3 halfway there
    2 by the pond

race outcome
    5 [stopped to nap]. {Other} [did not stop]. When {hero} [looked up], {other} was already [waiting] at the
        {goal}. [Lesson]\nMoral: {moral.patience}
    4 heard a cry. {Other} had [fallen]. {Hero} [turned back] and helped {other} up. They reached the {goal}
        [side by side]. [Friends]\nMoral: {moral.kindness}

stopped to nap
    4 stopped to take a nap
    3 lay down in the grass
    3 sat down to eat some {hero.food}
    2 stopped to admire {hero.his} {hero.pride}

did not stop
    3 did not stop
    3 kept on and on
    2 never once looked round

looked up
    3 looked up
    2 woke
    2 came running at last

waiting
    3 waiting
    2 resting

fallen
    4 fallen into a ditch
    3 slipped on a wet stone

turned back
    4 turned back
    1 gave up the race

side by side
    4 side by side
    2 together

# ------------------------------------------------------------------ theft

theft
    4 noticed that {hero.his} [little] [thing:treasure] was gone. [search]
    2 woke up and could not find {hero.his} [little] [thing:treasure]. [search]

search
    3 {Hero.he} asked [count:number] neighbours, but [gift:some of {count}] knew nothing and the other
        {gift.left} [only laughed]. [suspect]
    2 {Hero.he} looked [in every corner] and followed the [muddy] footprints by the door. [suspect]

only laughed
    3 only laughed
    2 would not say

in every corner
    3 in every corner
    2 under the bed

muddy
    3 muddy
    2 small
    1 fresh

suspect
    1 [At last] {hero.he} came to [neighbour], who lived {other.home}. "[Have you seen] my {thing}?"
        [asked hero]. [theft outcome]

at last
    3 at last
    2 in the end
    1 much later

have you seen
    4 have you seen
    2 do you know
    1 where is
    1 who has taken

theft outcome
    5 {Other} [hung] {other.his} head. "I took it," [said other]. "[Excuse]." {Hero} [was silent for a while],
        and then {hero.he} [forgave] {other.him}. [Friends]\nMoral: {moral.honesty}
    4 "[Never]," [said other]. But at that moment the {thing} [fell out]. When {other} [saw a fire]
        [one night] and called for help, nobody came.\nMoral: {moral.lies}

hung
    3 hung
    1 bowed

excuse
    3 it was so pretty
    3 I meant to bring it back
    2 I am sorry

was silent for a while
    3 was silent for a while
    2 sighed

forgave
    4 forgave
    2 embraced

never
    3 never in my life
    2 what a question
    2 ask the wind

fell out
    3 fell out of {other.his} [little] bag
    3 fell out from under {other.his} bed

saw a fire
    3 saw a fire
    2 lost {other.his} way
    1 fell into the well

one night
    3 one night
    2 [few] days later
    1 that winter

# ------------------------------------------------------------------ trap

trap
    4 [slipped] and was caught in [a net]. "[Cry for help]" {hero.call} {hero}, but [only the wind answered].
        [helper]
    2 did not look where {hero.he} was going and ran into [a net]. For [few] hours {hero.he} pulled in vain.
        [helper]

slipped
    4 slipped
    3 tripped

a net
    4 a hunter's net
    3 a thorn bush
    2 an old rope
    2 the deep mud

cry for help
    4 help, help!
    2 who will help me?
    1 is anybody there?

only the wind answered
    3 only the wind answered
    2 no one was near

helper
    1 [Visitor] [trap outcome]

trap outcome
    5 ["Hold still]," [said other]. {Other} was [known] for {other.talent}. It took [count:number] [tries],
        and then {hero} was free. [Later], {other} [was in trouble], and {hero} [came at once].
        [Friends]\nMoral: {moral.help}
    4 ["Too busy]," [said other], and {other.gait} on. {Hero} was not free until [sunset]. [Later], {other}
        was caught in the same way. {Hero} [could have gone on], but {hero.he} helped, and gave {other.him}
        [presents].\nMoral: {moral.mercy}

"Hold still
    4 "Hold still
    3 "Do not be afraid
    2 "Wait a little

tries
    4 tries
    2 hours

was in trouble
    3 was in trouble
    3 fell ill {other.home}
    2 lost {other.his} way

came at once
    4 came with [presents]
    2 did not forget

"Too busy
    3 "I am far too busy
    3 "That is not my trouble

sunset
    4 sunset
    3 noon
    2 midnight

could have gone on
    3 could have gone on
    2 remembered everything

# ------------------------------------------------------------------ flattery

flattery
    4 sat down [on a log] with a [little] [dish] of {hero.food}. [Visitor] [flatterer]
    2 was laying the table with a [little] [dish] of {hero.food}. [Visitor] [flatterer]

on a log
    3 on a log
    2 under a tree
    2 by the river

dish
    4 dish
    3 bowl
    2 plate

flatterer
    1 "[Good day]," [said other]. "How I [admire] your {hero.pride}! [They say] that you [act:performance]
        like [an angel]. [Show me]!" [flattery outcome]

good day
    4 good day, {hero}
    3 welcome, {hero}
    2 dear {hero}

admire
    4 admire
    2 love
    1 envy

they say
    3 they say
    2 I have heard
    1 all say

an angel
    3 an angel
    2 no one else
    2 a king

show me
    4 show me
    2 let me see it

flattery outcome
    5 {Hero} was so [pleased] that {hero.he} put down the food, shut {hero.his} eyes and {act.past}
        [for a while]. When {hero.he} [opened them], the food was gone, and so was {other}. [Lesson]\nMoral:
        {moral.flattery}
    4 "[You praise me], but you look at my {hero.food}," [said hero]. {Other} [had to laugh]. "I am hungry,"
        [said other]. [Friends]\nMoral: {moral.plainness}

pleased
    4 pleased
    2 happy

for a while
    3 for a while
    2 all day

opened them
    4 opened them
    2 looked up

you praise me
    3 you praise me
    2 you speak well

had to laugh
    3 had to laugh
    2 blushed
    1 looked down

# ------------------------------------------------------------------ winter

winter
    4 was busy filling {hero.his} cellar with {hero.food} for the winter. [Visitor] [idler]
    2 was hard at work, for the winter [was near]. [Visitor] [idler]

was near
    3 was near
    2 comes early there

idler
    1 "[Why work] on such a day?" [asked other]. "Come and [play] with me!" [winter outcome]

why work
    3 why work
    2 who works

play
    4 play
    3 dance
    2 sing

winter outcome
    5 "[First the work]," [said hero], and [went on]. When the snow came, {hero} had [count:number] [jars] of
        {hero.food}, and {other} had none. {Hero} gave {other.him} [gift:some of {count}], and {gift.left}
        {gift.were} left. "Next year I will work [beside you]," [said other].\nMoral: {moral.work}
    4 {Hero} [threw down the basket] and went along. [All summer] they [danced] [in the meadow]. Then the snow
        came, and {hero} looked into the cellar. There was nothing but [presents]. {Hero} and {other}
        [went hungry] until spring.\nMoral: {moral.idleness}


first the work
    3 first the work, then the play
    3 the winter is long
    2 not today, for the wind is turning

went on
    4 went on
    2 worked until [sunset]

jars
    4 jars
    3 sacks
    2 baskets

beside you
    3 beside you
    2 as you do

threw down the basket
    4 threw down the basket
    2 laughed

all summer
    3 all summer
    2 day after day
    2 for [few] weeks

danced
    4 danced
    2 played
    2 sang
    1 slept

in the meadow
    3 in the meadow
    2 by the river
    1 on the hills

went hungry
    4 went hungry
    2 lived on snow and bark

# ------------------------------------------------------------------ quarrel

quarrel
    4 saw a [little] [thing:treasure] [on the road]. [rival finder]
    2 picked up a [little] [thing:treasure] [on the road]. [rival finder]

on the road
    3 on the road
    3 under a bench
    2 by the well

rival finder
    1 At the same [moment] [neighbour] saw it too. "[Mine alone]!" [shouted hero]. "[No], I saw the {thing}
        first!" [shouted other]. They [pulled] and [shouted] until [sunset]. [quarrel outcome]

moment
    3 moment
    2 time

mine alone
    4 it is mine
    2 give it to me
    1 let go of it

no
    4 no
    2 oh no
    1 never

pulled
    4 pulled
    2 pushed

shouted
    4 shouted
    2 argued
    1 cried

quarrel outcome
    5 Meanwhile [a magpie] with [presents] [came along], [took] the {thing} and was gone. {Hero} looked at
        {other}, and {other} looked at {hero}. [Not a word] was said.\nMoral: {moral.quarrel}
    4 [At last] {hero} [let go]. "[A plan]," [said hero]. {Other} [agreed], and they [shook hands on it].
        [Friends]\nMoral: {moral.agreement}

a magpie
    4 a magpie
    2 a thief

came along
    4 came along
    2 crept up

took
    4 took
    2 seized

not a word
    4 not a word
    2 nothing

let go
    3 let go
    2 sat down
    1 had to laugh

a plan
    3 you keep it today, and I tomorrow
    3 let us both use it

agreed
    4 agreed
    2 nodded
    1 laughed

shook hands on it
    3 shook hands on it
    2 carried the {thing} home together

# ------------------------------------------------------------------ wish

wish
    4 grew tired of being {hero.a}{hero.kind}. [silent rival]"[If only] I were {other.a}{hero.rival}!"
        [said hero]. [another life]
    2 envied the {hero.rival}[silent rival]. "What a life {other.a}{other.kind} has!" [said hero].
        [another life]

silent rival
    1 [other:rival of {hero.kind}]

if only
    4 if only
    2 how I wish

another life
    1 So {hero.he} took a [little] [treasure] and [tried] to live like one. {Hero.he} slept {other.home} and
        ate [nothing but] {other.food}. [wish outcome]

tried
    4 tried
    2 began

nothing but
    4 nothing but
    2 only

wish outcome
    5 But the bed was [too hard], and the food made {hero.him} [ill]. After [few] days {hero.he} {hero.gait}
        home and [asked for] a [little] [dish] of {hero.food} and [presents of food]. "[Never again],"
        [said hero].\nMoral: {moral.nature}
    4 One [cold] [morning] {hero.he} met [other:other name], a [real] {other.kind}, with [presents]. "What
        would I not give for your {hero.pride}!" [said other]. "And I for your {other.pride}," [said hero].
        Both [began to laugh], and {hero} {hero.gait} home [happily].\nMoral: {moral.envy}

too hard
    3 too hard
    3 too cold

ill
    4 ill
    2 sad
    1 thin

asked for
    3 asked for
    2 ate

never again
    4 never again
    3 home is best
    2 this is the life for me

real
    4 real
    2 true

began to laugh
    4 began to laugh
    2 sighed

happily
    4 happily
    2 with a light heart

# ------------------------------------------------------------------ promise

promise
    4 needed a [little] [thing:treasure] and went to borrow one from [neighbour], who lived {other.home}.
        [promises]
    2 asked [neighbour] for the loan of a [little] [thing:treasure]. [promises]

promises
    1 "[I will bring it back] in [count:number] days," [said hero]. {Other} [trusted] {hero.him}.
        [promise outcome]

I will bring it back
    3 I will bring it back
    3 You will have it back

trusted
    4 trusted
    2 believed

promise outcome
    5 Then [came a storm], and [the roads] were [flooded]. But on the {count.ordinal} day {hero} stood at the
        door with the {thing} and [presents]. "[Well done]," [said other]. [Friends]\nMoral: {moral.promise}
    4 The {count.ordinal} day [came and went], and {hero} [forgot]. The {thing} [lay in a corner]. [Later],
        {hero} came to borrow a [little] [treasure]. "[Not again]," [said other], and [shut the door].
        [Lesson]\nMoral: {moral.trust}

came a storm
    4 came a storm
    2 it rained for [few] days

the roads
    3 the roads
    2 the fields

flooded
    4 flooded
    3 under water

well done
    3 I knew that you would come
    3 your word is worth gold
    2 come in and rest

came and went
    4 came and went
    2 passed

forgot
    4 forgot
    3 was busy
    2 never thought of it

lay in a corner
    4 lay in a corner
    2 grew dusty
    1 was lost

not again
    3 not again
    3 I remember the last time

shut the door
    4 shut the door
    2 turned away
"""
