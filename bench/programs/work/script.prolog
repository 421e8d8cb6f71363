% Prolog: facts that come and go, a search, terms that are taken apart, and texts.
% Prints what it found. Usage: script.prolog FACTS
:- initialization(main, main).
:- dynamic fact/3.

queens(Size, Queens) :-
    numlist(1, Size, Rows),
    place_all(Rows, [], Queens).

place_all([], Queens, Queens).
place_all(Rows, Placed, Queens) :-
    select(Row, Rows, Rest),
    safe(Row, 1, Placed),
    place_all(Rest, [Row|Placed], Queens).

safe(_, _, []).
safe(Row, Distance, [Other|Placed]) :-
    abs(Row - Other) =\= Distance,
    Next is Distance + 1,
    safe(Row, Next, Placed).

remember(Number) :-
    Key is Number * 7919 mod 5003,
    atom_concat(key, Key, Name),
    format(string(Text), "text ~w of ~w", [Number, Name]),
    assertz(fact(Name, Number, [Text, f(Number, Key)])).

found(Count, Third) :-
    findall(Name-Number, fact(Name, Number, _), Pairs),
    keysort(Pairs, Sorted),
    group_pairs_by_key(Sorted, Groups),
    length(Groups, Count),
    aggregate_all(count, (fact(_, Number, [_, f(Number, Key)]), Key mod 3 =:= 0), Third).

main([Facts]) :-
    atom_number(Facts, Count),
    forall(between(1, Count, Number), remember(Number)),
    found(Names, Third),
    retractall(fact(_, _, _)),
    forall(between(1, Count, Number), remember(Number)),
    findall(Queens, queens(7, Queens), All),
    found(Names, Third),
    length(All, Solutions),
    format("~w ~w ~w~n", [Names, Third, Solutions]).
